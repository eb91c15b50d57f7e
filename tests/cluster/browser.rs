//! Web pages in a real browser: the tests in `tests/browser/`, and what they need.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use switchboard_testkit::available;
use tokio::process::Command;

/// Debian's name, and others'.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser, and what drives it.
pub(crate) struct Browser {
    directory: PathBuf,
    chromium: PathBuf,
}

impl Browser {
    /// `None` if this machine has none; then the test is skipped.
    pub(crate) fn find() -> Option<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let candidates =
            std::env::split_paths(&path).flat_map(|directory| BROWSERS.map(|name| directory.join(name)));
        let chromium = candidates.into_iter().find(|path| path.is_file());
        let is_installed = ["playwright-core", "axe-core"]
            .iter()
            .all(|name| directory.join("node_modules").join(name).is_dir());
        if !available("Chromium", chromium.is_some())
            || !available("playwright-core and axe-core (`npm ci` in tests/browser)", is_installed)
        {
            return None;
        }
        Some(Self { directory, chromium: chromium? })
    }

    /// Runs the tests in a file, and answers what they said.
    pub(crate) async fn run(&self, file: &str, environment: &[(&str, String)]) -> Output {
        let mut tests = Command::new("node");
        tests.args(["--test", file]).current_dir(&self.directory).stdin(Stdio::null()).kill_on_drop(true);
        tests.env("CHROMIUM", &self.chromium).envs(environment.iter().map(|(name, value)| (name, value)));
        tests.output().await.unwrap()
    }
}

/// For messages.
pub(crate) fn words(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
