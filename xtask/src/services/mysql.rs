//! A private MariaDB, which stands for the MySQL family.

mod program;
mod server;

use std::path::Path;

pub(crate) use self::{program::Programs, server::MySqlServer};
use super::{Server, ServerDir, Service};
use crate::Result;

#[derive(Debug)]
pub(crate) struct MySql;

impl Service for MySql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn variable(&self) -> &'static str {
        "PILLARBOX_MYSQL_URL"
    }

    fn compose_url(&self) -> &'static str {
        "mysql://root@127.0.0.1:33069/pillarbox_test"
    }

    fn missing_package(&self) -> Option<&'static str> {
        Programs::installed().is_none().then_some("mariadb-server")
    }

    fn server(&self, home: &Path) -> Result<Box<dyn Server>> {
        let programs = Programs::installed()
            .ok_or("MariaDB is not installed; run `cargo xtask services up`")?;
        let server_dir =
            ServerDir::new(home.join(format!("mysql-{}", programs.series()?)), "mysql")?;
        Ok(Box::new(MySqlServer::new(programs, server_dir)))
    }
}
