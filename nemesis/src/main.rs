//! A relay as a process of its own: `nemesis URL LOG` appends a line per delivery to LOG.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;

use nemesis::{Step, settings};
use pillarbox::{Cx, Failure, Listeners, Relay};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(log)) = (args.next(), args.next()) else {
        return Err("usage: nemesis STORE_URL DELIVERY_LOG".into());
    };
    let store = pillarbox::connect(&url).await?;
    let log = Arc::new(OpenOptions::new().create(true).append(true).open(log)?);
    let listeners = Listeners::new().on(move |step: Step, cx: Cx| {
        let log = Arc::clone(&log);
        async move { note(&log, &step, &cx) }
    });
    Relay::shared(store, listeners).settings(settings::hurried()).run_until(forever()).await?;
    Ok(())
}

/// One write per line: what the kernel has, a kill cannot take back.
fn note(mut log: &File, step: &Step, cx: &Cx) -> std::result::Result<(), Failure> {
    let line = format!("{} {} {}\n", step.account, step.n, cx.id());
    Ok(log.write_all(line.as_bytes())?)
}

/// It only ever ends by a kill.
async fn forever() {
    std::future::pending().await
}
