//! `nemesis show [--quick] [--store NAME]… [--seed N] [--seconds N] [--kills N] [--relays N]
//! [--json FILE] [show…]` tries to break the promise.
//!
//! `nemesis relay ORDERS`, `nemesis write ORDERS` and the [roles](actor::ROLES) of actors are the
//! processes it starts.

#![allow(clippy::print_stdout, reason = "a command line tool answers on stdout")]

use std::path::PathBuf;
use std::process::ExitCode;

use nemesis::place::Server;
use nemesis::process::Program;
use nemesis::show::{Scale, Set, Show};
use nemesis::table::{Finding, json, text};
use nemesis::{Result, actor, relay};
use serde_json::Value;

const USAGE: &str = "usage: nemesis show [--quick] [--store NAME] [--seed N] [--seconds N] \
                     [--kills N] [--relays N] [--json FILE] [show…]";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args).await {
        Ok(code) => code,
        Err(error) => {
            let mut why = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                why = format!("{why}: {error}");
                cause = error.source();
            }
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &[String]) -> Result<ExitCode> {
    match args {
        [role, orders] if role == "relay" => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            relay::run(serde_json::from_str(orders)?).await?;
        }
        [role, orders] if role == "write" => relay::write(serde_json::from_str(orders)?).await?,
        [role, orders] if actor::ROLES.contains(&role.as_str()) => {
            actor::run(role, serde_json::from_str(orders)?).await?;
        }
        [role, options @ ..] if role == "show" => return show(&Options::parse(options)?).await,
        _ => return Err(USAGE.into()),
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(options: &Options) -> Result<ExitCode> {
    let mut worst = ExitCode::SUCCESS;
    let mut reports = Vec::new();
    for show in &options.shows {
        for server in options.servers.iter().filter(|server| show.is_for(**server)) {
            let Some(base) = server.base() else { continue };
            let set = Set {
                server: *server,
                base,
                scale: options.scale,
                seed: options.seed,
                seconds: options.seconds,
                kills: options.kills,
                relays: options.relays,
                program: Program::new(std::env::current_exe()?),
            };
            let found = show.run(&set).await.unwrap_or_else(|error| vec![Finding::failed(&*error)]);
            let title = format!("{}, {}, seed {}", show.name(), server.name(), options.seed);
            print!("{}", text(&title, &found));
            let mut report = json(&found);
            report.insert("show".to_owned(), show.name().into());
            report.insert("store".to_owned(), server.name().into());
            report.insert("seed".to_owned(), options.seed.into());
            reports.push(Value::from(report));
            if found.iter().any(|finding| finding.verdict.is_bad()) {
                worst = ExitCode::FAILURE;
            }
        }
    }
    if let Some(file) = &options.json {
        // One run is an object, several are a list of them.
        let one = (reports.len() == 1).then(|| reports.remove(0));
        let all = one.unwrap_or(Value::from(reports));
        std::fs::write(file, serde_json::to_string_pretty(&all)? + "\n")?;
    }
    Ok(worst)
}

/// What was asked for.
#[derive(Debug)]
struct Options {
    scale: Scale,
    seed: u64,
    seconds: Option<u64>,
    kills: Option<u64>,
    relays: Option<u64>,
    json: Option<PathBuf>,
    servers: Vec<Server>,
    shows: Vec<Show>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self {
            scale: Scale::Full,
            seed: 1,
            seconds: None,
            kills: None,
            relays: None,
            json: None,
            servers: Vec::new(),
            shows: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => options.scale = Scale::Quick,
                "--seed" => options.seed = number(arg, args.next())?,
                "--seconds" => options.seconds = Some(number(arg, args.next())?),
                "--kills" => options.kills = Some(number(arg, args.next())?),
                "--relays" => options.relays = Some(number(arg, args.next())?.clamp(1, 8)),
                "--json" => options.json = Some(args.next().ok_or("--json needs a file")?.into()),
                "--store" => options.servers.push(server(args.next().map_or("", |name| name))?),
                name => options.shows.push(named(name)?),
            }
        }
        if options.servers.is_empty() {
            options.servers.extend(Server::ALL);
        }
        if options.shows.is_empty() && (options.seconds.is_some() || options.kills.is_some()) {
            // Only a storm lasts as long as one says.
            options.shows.push(Show::Storm);
        } else if options.shows.is_empty() {
            options.shows.extend(Show::ALL);
        }
        Ok(options)
    }
}

fn number(option: &str, word: Option<&String>) -> Result<u64> {
    Ok(word.ok_or_else(|| format!("{option} needs a number"))?.parse()?)
}

fn server(name: &str) -> Result<Server> {
    let found = Server::ALL.into_iter().find(|server| server.name() == name);
    found.ok_or_else(|| format!("--store is postgres, mysql or sqlite, not `{name}`").into())
}

fn named(name: &str) -> Result<Show> {
    let names = Show::ALL.map(Show::name).join(", ");
    let found = Show::ALL.into_iter().find(|show| show.name() == name);
    found.ok_or_else(|| format!("no show `{name}`; there are {names}").into())
}
