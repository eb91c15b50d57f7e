//! Finds installed PostgreSQL binaries: a pure list of places to look, in order, and a probe that decides.
//!
//! Server programs are rarely on PATH (Debian and Fedora keep them in a directory per version), so the places the
//! packagers use are known here. The first usable place wins; within a place of many versions the newest does.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::account::{Account, detached};
use crate::{Error, Installation};

/// Names the directory of the binaries to use, instead of searching: `/usr/lib/postgresql/16/bin`.
pub const BIN_DIR_VARIABLE: &str = "SWITCHBOARD_PG_BIN";

/// Where packagers put the server programs, as (parent, start of the version directory, rest).
const PLACES: [(&str, &str, &str); 11] = [
    ("usr/lib/postgresql", "", "bin"),                          // Debian, Ubuntu
    ("usr", "pgsql-", "bin"),                                   // Fedora, RHEL: PostgreSQL's own packages
    ("usr", "bin", ""),                                         // Fedora, Arch: the distribution's package
    ("usr/lib", "postgresql", "bin"),                           // openSUSE
    ("usr/libexec", "postgresql", ""),                          // Alpine
    ("opt/homebrew/opt", "postgresql@", "bin"),                 // Homebrew on Apple silicon
    ("usr/local/opt", "postgresql@", "bin"),                    // Homebrew on Intel
    ("home/linuxbrew/.linuxbrew/opt", "postgresql@", "bin"),    // Homebrew on Linux
    ("Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
    ("opt/local/lib", "postgresql", "bin"),                     // MacPorts
    ("usr/local", "pgsql", "bin"),                              // built from source
];

impl Installation {
    /// Looks for PostgreSQL 14 or newer: in `SWITCHBOARD_PG_BIN`, on PATH, where `pg_config` points to, then in the
    /// usual places of Debian, Fedora, Arch, Homebrew, Postgres.app and others. `None` if there is none.
    ///
    /// Blocks while it runs `postgres --version` for a few candidates.
    ///
    /// # Errors
    ///
    /// [`Error::WrongBinDir`] if the variable is set to something else than a directory of usable binaries.
    pub fn find() -> Result<Option<Self>, Error> {
        let account = Account::choose(None)?;
        Ok(search(&Surroundings::of_this_process(), None, &account)?.found)
    }

    /// Takes the binaries of one directory.
    ///
    /// # Errors
    ///
    /// [`Error::WrongBinDir`] with the rule it breaks.
    pub fn at(bin_dir: &Path) -> Result<Self, Error> {
        given("the directory", bin_dir, &Account::choose(None)?)
    }
}

/// What a search found, and what it saw on the way and could not use.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) found: Option<Installation>,
    /// Candidates with the reason, for the message if nothing better turns up.
    pub(crate) rejected: Vec<String>,
}

/// What a search depends on.
#[derive(Debug)]
pub(crate) struct Surroundings {
    bin_dir_variable: Option<OsString>,
    path: OsString,
    /// `/`, except in tests.
    root: PathBuf,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Self {
        Self {
            // Compose files and CI matrices pass an empty value for "not set".
            bin_dir_variable: std::env::var_os(BIN_DIR_VARIABLE).filter(|value| !value.is_empty()),
            path: std::env::var_os("PATH").unwrap_or_default(),
            root: PathBuf::from("/"),
        }
    }
}

/// The first usable installation, of the given major version if there is one.
pub(crate) fn search(
    around: &Surroundings,
    major: Option<u32>,
    account: &Account,
) -> Result<Findings, Error> {
    if let Some(value) = &around.bin_dir_variable {
        let found = given(BIN_DIR_VARIABLE, Path::new(value), account)?;
        return Ok(Findings { found: Some(found), rejected: Vec::new() });
    }
    let mut findings = Findings::default();
    for candidate in candidates(around) {
        match Installation::probe(&candidate, account) {
            Ok(found) if major.is_none_or(|major| major == found.major()) => {
                findings.found = Some(found);
                break;
            }
            Ok(other) => {
                findings.rejected.push(format!("{}: PostgreSQL {}", candidate.display(), other.version()));
            }
            Err(reason) => findings.rejected.push(format!("{}: {reason}", candidate.display())),
        }
    }
    Ok(findings)
}

/// A directory somebody insists on: usable, or an error that says why not.
pub(crate) fn given(origin: &str, bin_dir: &Path, account: &Account) -> Result<Installation, Error> {
    let refuse =
        |reason: String| Error::WrongBinDir { origin: origin.to_owned(), value: bin_dir.to_owned(), reason };
    if !bin_dir.is_absolute() {
        return Err(refuse("it is not an absolute path".to_owned()));
    }
    Installation::probe(bin_dir, account).map_err(refuse)
}

/// Directories that hold an `initdb`, most preferred first, none twice.
fn candidates(around: &Surroundings) -> Vec<PathBuf> {
    let on_path = std::env::split_paths(&around.path).filter(|dir| dir.is_absolute());
    let usual = PLACES.iter().flat_map(|(parent, start, rest)| {
        versions_in(&around.root.join(parent), start).into_iter().map(move |dir| dir.join(rest))
    });
    let mut seen = Vec::new();
    on_path
        .chain(pg_config_bindir(around))
        .chain(usual)
        .filter(|dir| dir.join("initdb").exists())
        .filter(|dir| {
            let real = dir.join("initdb").canonicalize().unwrap_or_else(|_| dir.clone());
            let new = !seen.contains(&real);
            seen.push(real);
            new
        })
        .collect()
}

/// `pg_config` comes with the development package and knows where the server programs of its version are.
fn pg_config_bindir(around: &Surroundings) -> Option<PathBuf> {
    let pg_config = std::env::split_paths(&around.path)
        .map(|dir| dir.join("pg_config"))
        .find(|program| program.is_absolute() && program.is_file())?;
    let output = detached(pg_config).arg("--bindir").stdout(Stdio::piped()).output().ok()?;
    let dir = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    dir.is_absolute().then_some(dir)
}

/// Directories in `parent` whose name is `start` and a version, newest version first.
fn versions_in(parent: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<(Reverse<Vec<u32>>, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let version = version_key(entry.file_name().to_str()?.strip_prefix(start)?)?;
            Some((Reverse(version), entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// `16` → `[16]`, `9.6` → `[9, 6]`, nothing → `[]` (an unversioned name). Other names are no versions.
fn version_key(version: &str) -> Option<Vec<u32>> {
    if version.is_empty() {
        return Some(Vec::new());
    }
    version.split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Programs that can do nothing but state their version.
    pub(crate) fn fake_installation(bin_dir: &Path, version: &str) {
        // Written by another process: a file this one has open for writing could be inherited by a concurrent fork of
        // another test and then not be executed ("text file busy").
        let script = r#"mkdir -p "$1" && cd "$1" && for program in initdb pg_ctl postgres; do
            printf '#!/bin/sh\necho "postgres (PostgreSQL) %s"\n' "$2" >$program && chmod 755 $program; done"#;
        let status =
            std::process::Command::new("sh").args(["-c", script, "sh"]).arg(bin_dir).arg(version).status();
        assert!(status.unwrap().success());
    }

    struct Machine {
        root: tempfile::TempDir,
        path: Vec<PathBuf>,
        variable: Option<OsString>,
    }

    impl Machine {
        fn new() -> Self {
            Self { root: tempfile::tempdir().unwrap(), path: Vec::new(), variable: None }
        }

        fn with(self, dir: &str, version: &str) -> Self {
            fake_installation(&self.root.path().join(dir), version);
            self
        }

        fn on_path(mut self, dir: &str) -> Self {
            self.path.push(self.root.path().join(dir));
            self
        }

        fn search(&self, major: Option<u32>) -> Result<Findings, Error> {
            let around = Surroundings {
                bin_dir_variable: self.variable.clone(),
                path: std::env::join_paths(&self.path).unwrap(),
                root: self.root.path().to_owned(),
            };
            search(&around, major, &Account::Caller)
        }

        fn found(&self) -> String {
            let found = self.search(None).unwrap().found.unwrap();
            let root = self.root.path().canonicalize().unwrap();
            found.bin_dir().strip_prefix(root).unwrap().display().to_string()
        }
    }

    #[test]
    fn every_known_place_is_looked_at() {
        for dir in [
            "usr/lib/postgresql/15/bin",
            "usr/pgsql-16/bin",
            "usr/bin",
            "usr/lib/postgresql16/bin",
            "usr/libexec/postgresql16",
            "opt/homebrew/opt/postgresql@16/bin",
            "opt/homebrew/opt/postgresql@16/bin",
            "usr/local/opt/postgresql@17/bin",
            "home/linuxbrew/.linuxbrew/opt/postgresql@17/bin",
            "Applications/Postgres.app/Contents/Versions/17/bin",
            "opt/local/lib/postgresql17/bin",
            "usr/local/pgsql/bin",
        ] {
            assert_eq!(Machine::new().with(dir, "16.1").found(), dir);
        }
    }

    #[test]
    fn the_newest_version_of_a_place_is_taken_by_number() {
        let machine = Machine::new()
            .with("usr/lib/postgresql/9.6/bin", "9.6.1")
            .with("usr/lib/postgresql/14/bin", "14.2")
            .with("usr/lib/postgresql/16/bin", "16.2");
        assert_eq!(machine.found(), "usr/lib/postgresql/16/bin");
    }

    #[test]
    fn path_comes_before_the_usual_places() {
        let machine = Machine::new()
            .with("usr/lib/postgresql/16/bin", "16.2")
            .with("elsewhere", "15.2")
            .on_path("nothing-here")
            .on_path("elsewhere");
        assert_eq!(machine.found(), "elsewhere");
    }

    #[test]
    fn pg_config_comes_after_path_and_before_the_usual_places() {
        let machine =
            Machine::new().with("usr/lib/postgresql/16/bin", "16.2").with("pg/bin", "15.2").on_path("tools");
        let script = r#"mkdir "$1" && printf '#!/bin/sh\necho "%s"\n' "$2" >"$1/pg_config" && chmod 755 "$1/pg_config""#;
        let [tools, bin] = ["tools", "pg/bin"].map(|dir| machine.root.path().join(dir));
        let status = std::process::Command::new("sh").args(["-c", script, "sh"]).args([tools, bin]).status();
        assert!(status.unwrap().success());
        assert_eq!(machine.found(), "pg/bin");
    }

    #[test]
    fn old_and_incomplete_installations_are_passed_over_and_remembered() {
        let machine =
            Machine::new().with("old", "13.1").on_path("old").on_path("broken").with("broken", "16.1");
        std::fs::remove_file(machine.root.path().join("broken/postgres")).unwrap();
        let findings = machine.search(None).unwrap();
        assert_eq!(findings.found, None);
        assert!(findings.rejected[0].ends_with("old: PostgreSQL 13.1 is older than 14"), "{findings:?}");
        assert!(findings.rejected[1].ends_with("broken: postgres not in it"), "{findings:?}");
    }

    #[test]
    fn a_data_directory_may_ask_for_its_major_version() {
        let machine = Machine::new()
            .with("usr/lib/postgresql/15/bin", "15.2")
            .with("usr/lib/postgresql/16/bin", "16.2");
        assert_eq!(machine.search(Some(15)).unwrap().found.unwrap().version(), "15.2");
        assert_eq!(machine.search(Some(17)).unwrap().found, None);
    }

    #[test]
    fn a_wrong_variable_is_an_error_that_names_variable_value_and_rule() {
        let mut machine = Machine::new().with("usr/lib/postgresql/16/bin", "16.2");
        for (value, reason) in
            [("/nonexistent", "there is no such directory"), ("relative/bin", "not an absolute path")]
        {
            machine.variable = Some(value.into());
            let message = machine.search(None).unwrap_err().to_string();
            for part in [BIN_DIR_VARIABLE, value, reason, "initdb, pg_ctl and postgres"] {
                assert!(message.contains(part), "{part:?} is missing in {message:?}");
            }
        }
    }

    #[test]
    fn an_empty_machine_has_none() {
        assert_eq!(Machine::new().search(None).unwrap().found, None);
    }
}
