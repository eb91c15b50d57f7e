//! Conformance suites: what every adapter must do, whatever it is made of.
//!
//! An adapter implements the fixture of a port and calls the macro ([`registry_suite!`](crate::registry_suite),
//! [`durable_suite!`](crate::durable_suite), [`ephemeral_suite!`](crate::ephemeral_suite)), which makes one test of each
//! promise. A fixture has no optional parts: what an adapter cannot do, it does not promise.

pub mod durable;
pub mod ephemeral;
pub mod registry;
mod values;

pub use values::{channel, event, payload};

/// Makes a test of each function of a suite.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ($suite:ident, $fixture:ty, [$($promise:ident),* $(,)?]) => {
        $(
            #[$crate::tokio::test(flavor = "multi_thread", crate = "switchboard_testkit::tokio")]
            async fn $promise() {
                let fixture = <$fixture as $crate::suites::$suite::Fixture>::new().await;
                let promise = $crate::suites::$suite::$promise(&fixture);
                $crate::tokio::time::timeout($crate::LONG * 4, promise).await.expect("the adapter hangs");
            }
        )*
    };
}
