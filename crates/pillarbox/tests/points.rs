//! Every crash point of the list is somewhere in the code, and every one in the code is in the list.

#![cfg(feature = "crash-points")]
#![allow(clippy::unwrap_used, reason = "a test helper may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pillarbox::crash_point::CRASH_POINTS;

#[test]
fn the_list_and_the_code_have_the_same_points() {
    let mut passed = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut passed);

    let listed: BTreeSet<(String, bool)> =
        CRASH_POINTS.iter().map(|point| (point.name.to_owned(), point.fails)).collect();

    assert_eq!(passed, listed);
    assert_eq!(CRASH_POINTS.len(), listed.len(), "a name is there twice");
}

/// Names, each with whether an error can be returned there.
fn collect(dir: &Path, passed: &mut BTreeSet<(String, bool)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, passed);
        } else if !path.ends_with("crash_point.rs") {
            let text = fs::read_to_string(&path).unwrap();
            for call in text.split("point!(\"").skip(1) {
                let (name, rest) = call.split_once('"').unwrap();
                passed.insert((name.to_owned(), rest.starts_with('?')));
            }
        }
    }
}
