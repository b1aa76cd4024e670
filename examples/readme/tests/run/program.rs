//! The README's programs: what they depend on, what they are, and what they print.

use std::path::{Path, PathBuf};
use std::process::Command;

use pillarbox::store::Filter;
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Admin, Cx, Envelope, EventId, Failure, Listeners, Relay, SqliteStore};

use crate::document::{blocks, languages};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[test]
fn every_block_is_checked() {
    assert_eq!(languages(), ["sh", "toml", "rust", "text", "sql", "rust", "text", "sh"]);
}

#[test]
fn the_programs_are_those_of_this_crate() {
    let programs =
        [("main.rs", include_str!("../../src/main.rs")), ("bin/mail-is-back.rs", MAIL_IS_BACK)];

    let shown = blocks("rust");

    assert_eq!(shown.len(), programs.len());
    for (shown, (file, program)) in shown.iter().zip(programs) {
        assert!(
            shown == program,
            "README.md and examples/readme/src/{file} differ: copy the one that is right\n\
             --- README.md\n{shown}\n--- {file}\n{program}"
        );
    }
}

const MAIL_IS_BACK: &str = include_str!("../../src/bin/mail-is-back.rs");

#[test]
fn the_dependencies_are_those_of_this_crate() {
    let manifest =
        include_str!("../../Cargo.toml").replace("path = \"../../crates/pillarbox\", ", "");

    let [shown] = &blocks("toml")[..] else { panic!("there is more than one block of TOML") };

    assert!(
        manifest.contains(&format!("\n{shown}\n")),
        "README.md and examples/readme/Cargo.toml differ in [dependencies]: \
         copy those that are right\n{shown}"
    );
}

/// A stop delivers what was committed before it, every time.
#[test]
fn the_example_prints_its_receipt_every_time() {
    for _ in 0..10 {
        let printed = run(env!("CARGO_BIN_EXE_readme"), Path::new("."));

        assert_eq!(masked(&printed), masked(&blocks("text")[0]));
    }
}

#[tokio::test]
async fn the_operators_program_replays_the_dead_letters_that_it_names() -> Result {
    let place = directory()?;
    let admin = dead_letters(&place).await?;

    let printed = run(env!("CARGO_BIN_EXE_mail-is-back"), &place);

    assert_eq!(printed, blocks("text")[1]);
    assert_eq!(admin.count(&Filter::default()).await?, 1, "the other one is still dead");
    Ok(std::fs::remove_dir_all(place)?)
}

/// A shop whose mail server refused two receipts; a third has no address.
async fn dead_letters(place: &Path) -> Result<Admin> {
    let store = SqliteStore::connect(&format!("sqlite://{}/shop.db", place.display())).await?;
    store.migrate().await?;
    for error in ["connection refused", "connection refused", "no such address"] {
        sqlx::query("insert into outbox_event (event_type, payload) values ('receipt', $1)")
            .bind(format!("\"{error}\""))
            .execute(store.pool())
            .await?;
    }
    let (admin, probe) = (Admin::new(store.clone()), Probe::new());
    let refuse = |envelope: Envelope, _: Cx| async move {
        let error = String::from_utf8_lossy(envelope.payload().as_bytes()).into_owned();
        Err::<(), _>(Failure::dead(error))
    };
    let relay = Relay::new(store, Listeners::new().on_type("__GLOBAL__", "receipt", refuse));
    let relay = relay.observer(probe.clone()).spawn().await?;
    let mut settled = 0;
    while admin.count(&Filter::default()).await? < 3 {
        let is_settled = |seen: &RelayEvent<'_>| matches!(seen, RelayEvent::Settled { .. });
        settled = probe.wait_many(settled + 1, is_settled).await.len();
    }
    relay.stop().await?;
    Ok(admin)
}

fn directory() -> Result<PathBuf> {
    let place = std::env::temp_dir().join(format!("pillarbox-readme-{}", EventId::generate()));
    std::fs::create_dir_all(&place)?;
    Ok(place)
}

fn run(program: &str, directory: &Path) -> String {
    let run = Command::new(program).current_dir(directory).output();
    let run = run.expect("the program was built with this test");
    let (printed, errors) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{printed}\n{errors}");
    printed.into_owned()
}

/// Without the id that a line begins with, which is another one each time.
fn masked(text: &str) -> String {
    let is_id = |word: &str| word.len() == 26 && word.parse::<EventId>().is_ok();
    let mask = |line: &str| match line.split_once(": ") {
        Some((id, rest)) if is_id(id) => format!("ID: {rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(mask).collect()
}
