//! The suites: every case is a plain function, listed once per contract.

pub(crate) mod claimer;
pub(crate) mod owner;
pub mod store;
pub mod tx;

/// Makes one named test of every case in a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($module:ident, $backend:ty, $suite:ident {
        $($group:ident { $($case:ident),+ $(,)? })+
    }) => {
        mod $module {
            #[allow(unused_imports, reason = "the backend's name may come from here")]
            use super::*;

            $(mod $group {
                #[allow(unused_imports, reason = "the backend's name may come from here")]
                use super::*;

                $(#[tokio::test]
                async fn $case() {
                    let path = concat!(module_path!(), "::", stringify!($case));
                    $crate::run(path, $crate::conformance::$suite::$group::$case::<$backend>).await;
                })+
            })+
        }
    };
}
