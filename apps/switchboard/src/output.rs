//! Standard output. Every line is out before the next thing happens, so that pipes see events as they come.
//!
//! `println!` would panic when the reader is gone; here that is an error like any other, which [`is_closed`] recognises and
//! `main` takes for a normal end.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write, stdout};

/// Prints one line, or several that belong together.
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Whether a command failed because nobody reads its output any more.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Tells the person at the terminal something that is not a result. Nobody listening is no error.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
