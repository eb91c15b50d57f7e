//! A suite that cannot fail proves nothing: for each way to break a promise, an adapter that does, and the test that must notice.
//!
//! Time is paused, so that waiting for what never comes costs nothing.

mod durable;
mod ephemeral;
mod history;
mod registry;

/// Makes a test of each fault: the promise holds for the very same adapter without the fault, and fails with it.
macro_rules! faults {
    ($adapter:ident, $($name:ident: $fault:expr => $promise:path;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                use std::panic::AssertUnwindSafe;
                use futures::FutureExt;
                $promise(&$adapter::with(None)).await;
                let broken = $adapter::with(Some($fault));
                let verdict = AssertUnwindSafe($promise(&broken)).catch_unwind().await;
                assert!(verdict.is_err(), "nobody noticed");
            }
        )*
    };
}
use faults;
