//! The history of the run: in memory for the verdict, and in a file for whoever has to find out what went wrong.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use parking_lot::Mutex;
use switchboard_core::types::{Channel, Position};
use switchboard_testkit::history::{History, Record, Summary, Violation};

pub(crate) struct Recording {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    history: History,
    file: BufWriter<File>,
}

impl Recording {
    /// Begins an empty one, whose file is named after the seed.
    pub(crate) fn begin(seed: u64) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("switchboard-checker-{seed}.jsonl"));
        let file = BufWriter::new(File::create(&path)?);
        Ok(Self { path, state: Mutex::new(State { history: History::default(), file }) })
    }

    pub(crate) fn push(&self, record: Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        let mut state = self.state.lock();
        state.file.write_all(&line)?;
        state.history.push(record);
        Ok(())
    }

    pub(crate) fn last(&self, by: &str, channel: &Channel) -> Option<Position> {
        self.state.lock().history.last(by, channel)
    }

    /// The first subscriber that is behind these heads.
    pub(crate) fn behind(&self, heads: &BTreeMap<Channel, Position>) -> Option<Violation> {
        self.state.lock().history.behind(heads).next()
    }

    pub(crate) fn verdict(&self) -> (Summary, Vec<Violation>) {
        let state = self.state.lock();
        (state.history.summary(), state.history.check())
    }

    /// Leaves the file and answers where it is.
    pub(crate) fn keep(&self) -> io::Result<&PathBuf> {
        self.state.lock().file.flush()?;
        Ok(&self.path)
    }

    /// Removes the file: nobody needs a history in which nothing is wrong.
    pub(crate) fn discard(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}
