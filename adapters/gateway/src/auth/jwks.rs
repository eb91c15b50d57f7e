//! A key set in a file that is read again and again, so that keys rotate without a restart.
//!
//! Invariant: a file that is gone, broken or empty changes nothing but the node's health. The keys stay those that were good last.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_core::types::Invalid;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::Keys;

/// How often the file is read. What was read is compared, not its time: that says little where files are links to others.
const CADENCE: Duration = Duration::from_secs(1);

/// Largest file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Why a key set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It holds no key set that can be used.
    #[error("{}", .0.rule())]
    Unusable(#[from] Invalid),
}

/// A file with a JSON Web Key Set, which was good when it was opened. `Debug` shows no key.
#[derive(Clone)]
pub struct JwksFile {
    path: PathBuf,
    text: String,
    keys: Keys,
}

impl JwksFile {
    /// Reads the file, once. Blocks.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JwksError> {
        let path = path.into();
        let text = read(&path)?;
        let keys = Keys::jwks(&text)?;
        Ok(Self { path, text, keys })
    }
}

impl fmt::Debug for JwksFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwksFile({:?}, {:?})", self.path, self.keys)
    }
}

fn read(path: &Path) -> Result<String, JwksError> {
    let mut text = String::new();
    if File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
        return Err(Invalid::new("key set", "(hidden)", format!("must be at most {MAX_BYTES} bytes")).into());
    }
    Ok(text)
}

/// The last good keys of a file, next to those that stay.
pub(super) struct Rotation {
    state: Arc<Mutex<State>>,
    /// Reads the file until it is dropped.
    _task: AbortOnDropHandle<()>,
}

impl Rotation {
    /// Begins to read the file again and again. Needs a Tokio runtime.
    pub(super) fn begin(JwksFile { path, text, keys }: JwksFile, lasting: Keys) -> Self {
        let keys = Arc::new(keys.and(&lasting));
        let state = Arc::new(Mutex::new(State { lasting, text, keys, broken: None }));
        let task = AbortOnDropHandle::new(tokio::spawn(follow(path, Arc::clone(&state))));
        Self { state, _task: task }
    }

    pub(super) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.state.lock().keys)
    }

    /// Why the file was of no use when it was read last.
    pub(super) fn broken(&self) -> Option<String> {
        self.state.lock().broken.clone()
    }
}

async fn follow(path: PathBuf, state: Arc<Mutex<State>>) {
    let mut ticks = interval(CADENCE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let shown = path.display().to_string();
    loop {
        ticks.tick().await;
        let path = path.clone();
        // It fails only when the runtime stops.
        let Ok(found) = spawn_blocking(move || read(&path)).await else { return };
        match state.lock().update(found) {
            Some(News::Rotated(keys)) => info!(file = shown, ?keys, "the keys for tokens have changed"),
            Some(News::Broken(reason)) => {
                warn!(
                    file = shown,
                    reason, "the file of keys for tokens is of no use; the keys before it stay"
                );
            }
            Some(News::Mended) => info!(file = shown, "the file of keys for tokens is good again"),
            None => {}
        }
    }
}

struct State {
    lasting: Keys,
    text: String,
    keys: Arc<Keys>,
    broken: Option<String>,
}

/// What is worth a line in the log.
#[derive(Debug)]
enum News {
    Rotated(Arc<Keys>),
    Broken(String),
    Mended,
}

impl State {
    /// Takes in what the file holds now.
    fn update(&mut self, found: Result<String, JwksError>) -> Option<News> {
        let unchanged = found.as_ref().is_ok_and(|text| *text == self.text);
        if unchanged {
            return self.broken.take().map(|_| News::Mended);
        }
        match found.and_then(|text| Ok((Keys::jwks(&text)?, text))) {
            Ok((keys, text)) => {
                self.keys = Arc::new(keys.and(&self.lasting));
                (self.text, self.broken) = (text, None);
                Some(News::Rotated(Arc::clone(&self.keys)))
            }
            Err(error) => {
                let reason = error.to_string();
                let is_news = self.broken.as_ref() != Some(&reason);
                self.broken = Some(reason.clone());
                is_news.then_some(News::Broken(reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(secret: &str) -> String {
        // base64url of 36 bytes.
        format!(r#"{{"keys": [{{"kty": "oct", "k": "{}"}}]}}"#, secret.repeat(48))
    }

    fn gone() -> Result<String, JwksError> {
        Err(io::Error::from(io::ErrorKind::NotFound).into())
    }

    #[test]
    fn a_broken_file_is_told_once_and_the_last_good_keys_stay() {
        let keys = Arc::new(Keys::jwks(&set("a")).unwrap());
        let lasting = Keys::default();
        let mut state = State { lasting, text: set("a"), keys: Arc::clone(&keys), broken: None };
        assert!(state.update(Ok(set("a"))).is_none());
        for broken in ["", "{", r#"{"keys": []}"#] {
            state.update(Ok(broken.to_owned()));
            assert!(state.update(Ok(broken.to_owned())).is_none(), "{broken:?} is told twice");
            assert!(state.broken.is_some());
        }
        assert!(
            matches!(state.update(gone()), Some(News::Broken(reason)) if reason.starts_with("cannot be read"))
        );
        assert!(state.update(gone()).is_none());
        assert!(Arc::ptr_eq(&state.keys, &keys));
        assert!(matches!(state.update(Ok(set("a"))), Some(News::Mended)));
        assert!(state.broken.is_none());
        state.update(gone());
        assert!(matches!(state.update(Ok(set("b"))), Some(News::Rotated(_))));
        assert!(state.broken.is_none() && !Arc::ptr_eq(&state.keys, &keys));
    }
}
