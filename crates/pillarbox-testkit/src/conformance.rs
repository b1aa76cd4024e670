//! The suites: every case is a plain function, listed once per contract.

pub(crate) mod any_owner;
pub(crate) mod claimer;
pub(crate) mod owner;
pub mod store;
pub mod tx;

/// Makes one named test of every case in a list; of a case with `(claim)`, one for each claim mode.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($module:ident, $backend:ty, $suite:ident {
        $($group:ident { $($case:ident $(($claim:ident))?),+ $(,)? })+
    }) => {
        mod $module {
            #[allow(unused_imports, reason = "the backend's name may come from here")]
            use super::*;

            $(mod $group {
                #[allow(unused_imports, reason = "the backend's name may come from here")]
                use super::*;

                $($crate::__suite! { @case $backend, $suite, $group, $case $(, $claim)? })+
            })+
        }
    };
    (@case $backend:ty, $suite:ident, $group:ident, $case:ident, claim) => {
        mod $case {
            #[allow(unused_imports, reason = "the backend's name may come from here")]
            use super::*;

            $crate::__suite! { @mode by_shards, Shards, $backend, $suite, $group, $case }
            $crate::__suite! { @mode by_rows, Rows, $backend, $suite, $group, $case }
        }
    };
    (@case $backend:ty, $suite:ident, $group:ident, $case:ident) => {
        $crate::__suite! { @test $case, $backend, $crate::conformance::$suite::$group::$case::<$backend> }
    };
    (@mode $test:ident, $claim:ident, $backend:ty, $suite:ident, $group:ident, $case:ident) => {
        $crate::__suite! { @test $test, $backend, async |backend: &$backend| {
            let claim = $crate::__ClaimMode::$claim;
            $crate::conformance::$suite::$group::$case::<$backend>(backend, claim).await;
        } }
    };
    (@test $test:ident, $backend:ty, $run:expr) => {
        #[tokio::test]
        async fn $test() {
            let path = concat!(module_path!(), "::", stringify!($test));
            $crate::run(path, $run).await;
        }
    };
}
