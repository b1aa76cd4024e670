//! Every run finds what is expected.

use pillarbox_model::{Outcome, Run, runs};

/// Explores the runs of one model.
fn explore(model: &str) -> Vec<(Run, Outcome)> {
    let runs = runs().into_iter().filter(|run| run.model == model);
    runs.map(|run| {
        let outcome = run.explore();
        (run, outcome)
    })
    .collect()
}

macro_rules! models {
    ($($name:ident: $model:literal, $count:literal;)*) => {$(
        #[test]
        fn $name() {
            let found = explore($model);
            assert_eq!(found.len(), $count);
            for (run, outcome) in found {
                assert!(run.is_as_expected(&outcome), "{run:?} found {outcome:#?}");
            }
        }
    )*};
}

models! {
    shards_keep_the_promises_by_every_rule: "shard lease, epoch, settle", 12;
    the_local_queue_keeps_the_promises_by_every_rule: "local queue with keys", 8;
    row_leases_keep_the_promises_by_every_rule: "row lease, replay, purge", 6;
    rows_that_wait_keep_the_promises_by_every_rule: "rows that wait", 18;
    the_inbox_keeps_its_promise_by_every_rule: "inbox", 5;
}

#[test]
fn every_run_is_of_a_model_that_is_tested() {
    assert_eq!(runs().len(), 12 + 8 + 6 + 18 + 5);
}
