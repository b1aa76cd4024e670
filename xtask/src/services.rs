//! The servers the tests need.
//!
//! A server named in the environment is used as it is. Every other one is private: started here,
//! below the temporary directory, and stopped by the last run that used it. `services up` and
//! `--keep` mark the private servers as kept, and then only `services down` stops them.

mod home;
mod install;
mod mysql;
mod postgres;
mod server;
mod server_dir;

use std::{env, error::Error, fs::File, path::Path, process::Command};

pub(crate) use self::{
    home::Home,
    mysql::{MySql, MySqlServer, Programs as MySqlPrograms},
    postgres::{Postgres, PostgresServer},
    server::Server,
    server_dir::ServerDir,
};
use crate::{
    Result,
    args::{Action, ServerOptions},
};

const ALL: [&dyn Service; 2] = [&Postgres, &MySql];

/// Names the servers whose absence fails a test instead of skipping it.
const REQUIRE: &str = "PILLARBOX_REQUIRE";

/// One kind of server.
pub(crate) trait Service {
    /// The word `PILLARBOX_REQUIRE` knows it by.
    fn name(&self) -> &'static str;

    /// The environment variable that carries its URL to the tests.
    fn variable(&self) -> &'static str;

    /// The URL of its container in `compose.yaml`.
    fn compose_url(&self) -> &'static str;

    /// The Debian package its programs come from, if they are not on this machine.
    fn missing_package(&self) -> Option<&'static str>;

    /// The private server; fails if its programs are not on this machine.
    fn server(&self, home: &Path) -> Result<Box<dyn Server>>;
}

/// `cargo xtask services`.
pub(crate) fn run(action: Action) -> Result {
    match action {
        Action::Up => {
            Services::up(ServerOptions { keep: true }).map(|services| services.print_exports())
        }
        Action::Down => down(),
        Action::Status => status(),
        Action::Restart => restart(),
    }
}

/// Servers that run for as long as this value lives.
pub(crate) struct Services {
    urls: Vec<(&'static str, String)>,
    /// Absent when every server is named in the environment.
    private: Option<Private>,
}

struct Private {
    home: Home,
    /// Taken when the servers are left.
    using: Option<File>,
}

impl Services {
    pub(crate) fn up(options: ServerOptions) -> Result<Self> {
        let wanted: Vec<_> = ALL.into_iter().filter(|service| !is_given(*service)).collect();
        install::ensure(&wanted)?;
        if wanted.is_empty() {
            return Ok(Self { urls: Vec::new(), private: None });
        }
        Self::start(&wanted, options)
    }

    fn start(wanted: &[&dyn Service], options: ServerOptions) -> Result<Self> {
        let home = Home::open("services")?;
        let private = Private { using: None, home: home.clone() };
        // Declared before the lock: if a start fails, the lock goes first and the servers can stop.
        let mut services = Self { urls: Vec::new(), private: Some(private) };
        let _changing = home.change()?;
        if wanted.iter().all(|service| running(*service, &home).is_none()) {
            home.forget()?;
        }
        if let Some(private) = &mut services.private {
            private.using = Some(home.enter()?);
        }
        for service in wanted {
            let url = service.server(home.dir())?.start()?;
            eprintln!("{}: {url}", service.name());
            services.urls.push((service.variable(), url));
        }
        if options.keep {
            home.keep()?;
        }
        Ok(services)
    }

    /// Tells a test run where the servers are, and that it must not do without them.
    ///
    /// URLs named in the environment are inherited; setting them again would print their passwords.
    pub(crate) fn announce_to(&self, command: &mut Command) {
        let servers = ALL.iter().map(|service| service.name());
        let tools = install::TOOLS.iter().map(|(program, _)| *program);
        let names: Vec<_> = servers.chain(tools).collect();
        command.env(REQUIRE, names.join(","));
        command.envs(self.urls.iter().map(|(variable, url)| (variable, url)));
    }

    /// Whether all servers are private, and nobody else uses them.
    pub(crate) fn are_ours_alone(&mut self) -> Result<bool> {
        let Some(private) = self.private.as_mut().filter(|_| self.urls.len() == ALL.len()) else {
            return Ok(false);
        };
        let _changing = private.home.change()?;
        drop(private.using.take());
        let is_alone = !private.home.is_in_use()?;
        private.using = Some(private.home.enter()?);
        Ok(is_alone)
    }

    /// Adds to a failed test run how to get its servers back.
    pub(crate) fn explain(&self, error: &dyn Error) -> Box<dyn Error> {
        if self.urls.is_empty() {
            return error.to_string().into();
        }
        format!("{error}\n  (its servers: cargo xtask services up)").into()
    }

    fn print_exports(&self) {
        for (variable, url) in &self.urls {
            println!("export {variable}={url}");
        }
        for service in ALL.into_iter().filter(|service| is_given(*service)) {
            println!("# {} is set: used as it is", service.variable());
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        let Some(private) = &mut self.private else {
            return;
        };
        if let Err(error) = private.leave() {
            eprintln!("warning: the servers may still run: {error}");
        }
    }
}

impl Private {
    fn leave(&mut self) -> Result {
        let _changing = self.home.change()?;
        drop(self.using.take());
        if self.home.is_kept() || self.home.is_in_use()? {
            return Ok(());
        }
        stop_all(&self.home)
    }
}

/// The URL of the private server, if it runs.
fn running(service: &dyn Service, home: &Home) -> Option<String> {
    service.server(home.dir()).ok()?.url()
}

fn is_given(service: &dyn Service) -> bool {
    env::var_os(service.variable()).is_some_and(|url| !url.is_empty())
}

/// Stops what runs; one server that does not stop keeps no other one running.
fn stop_all(home: &Home) -> Result {
    let mut problems = Vec::new();
    for service in ALL.into_iter().filter(|service| running(*service, home).is_some()) {
        match service.server(home.dir()).and_then(|server| server.stop()) {
            Ok(()) => eprintln!("{}: stopped", service.name()),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Starts private servers that were killed.
fn restart() -> Result {
    let home = Home::open("services")?;
    let _changing = home.change()?;
    for service in ALL.into_iter().filter(|service| !is_given(*service)) {
        service.server(home.dir())?.start()?;
    }
    Ok(())
}

fn down() -> Result {
    let home = Home::open("services")?;
    let _changing = home.change()?;
    if home.is_in_use()? {
        return Err("another run uses the servers; wait for it to end, then try again".into());
    }
    home.forget()?;
    stop_all(&home)?;
    println!("no private server runs");
    Ok(())
}

fn status() -> Result {
    let home = Home::open("services")?;
    for service in ALL {
        let state = match running(service, &home) {
            _ if is_given(service) => format!("yours ({} is set)", service.variable()),
            Some(url) => format!("running, {url}"),
            None => "not running; start it with `cargo xtask services up`".to_owned(),
        };
        println!("{}: {state}", service.name());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_containers_are_where_we_say_they_are() {
        let compose = include_str!("../../compose.yaml");

        for service in ALL {
            let export = format!("export {}={}\n", service.variable(), service.compose_url());
            assert!(compose.contains(&export), "compose.yaml does not say {export}");
            let name = format!("\n  {}:\n", service.name());
            assert!(compose.contains(&name), "compose.yaml has no service {}", service.name());
        }
    }
}
