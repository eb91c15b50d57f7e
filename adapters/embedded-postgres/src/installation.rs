//! A PostgreSQL installation that was seen to work: a directory with the programs, and their version.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::account::Account;

/// The programs that must be there together: a client-only package has none of them, Debian's wrappers only some.
pub(crate) const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// The oldest supported major version.
pub(crate) const OLDEST: u32 = 14;

/// Installed PostgreSQL binaries that this process, or the account it uses for PostgreSQL, can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    bin_dir: PathBuf,
    version: String,
    major: u32,
}

impl Installation {
    /// Runs the programs of a directory and reads their version, or says why it is not usable.
    pub(crate) fn probe(bin_dir: &Path, account: &Account) -> Result<Self, String> {
        let bin_dir = real_bin_dir(bin_dir)?;
        let postgres = bin_dir.join("postgres");
        let output = account
            .command(&postgres)
            .arg("--version")
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .output()
            .map_err(|error| {
                account.obstacle(&bin_dir).map_or_else(
                    || format!("postgres cannot be run: {error}"),
                    |why| format!("{why}: {error}"),
                )
            })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let (version, major) = parse_version(&said).ok_or_else(|| {
            let mut reason = format!("`postgres --version` says {:?}", said.trim());
            // Writing to a string cannot fail.
            let _ = write!(reason, " ({}) {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
            reason
        })?;
        if major < OLDEST {
            return Err(format!("PostgreSQL {version} is older than {OLDEST}"));
        }
        Ok(Self { bin_dir, version, major })
    }

    /// The directory that holds `initdb`, `pg_ctl` and `postgres`, symbolic links resolved.
    pub fn bin_dir(&self) -> &Path {
        &self.bin_dir
    }

    /// The version as PostgreSQL states it, for example `15.13` or `18beta1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The major version, for example 15.
    pub fn major(&self) -> u32 {
        self.major
    }
}

/// The directory behind the programs. Programs find their libraries and `share` relative to where they really are, so a
/// directory of links (`/usr/local/bin`) will not do; a directory of wrapper scripts does.
fn real_bin_dir(bin_dir: &Path) -> Result<PathBuf, String> {
    let resolved =
        bin_dir.join("initdb").canonicalize().ok().and_then(|initdb| initdb.parent().map(Path::to_owned));
    match resolved {
        Some(resolved) if missing_from(&resolved).is_empty() => Ok(resolved),
        _ if !bin_dir.is_dir() => Err("there is no such directory".to_owned()),
        _ => match missing_from(bin_dir).as_slice() {
            [] => Ok(bin_dir.to_owned()),
            missing => Err(format!("{} not in it", missing.join(", "))),
        },
    }
}

fn missing_from(dir: &Path) -> Vec<&'static str> {
    PROGRAMS.into_iter().filter(|program| !dir.join(program).is_file()).collect()
}

/// `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)` → `("15.13", 15)`.
fn parse_version(said: &str) -> Option<(String, u32)> {
    let version = said.split("(PostgreSQL)").nth(1)?.split_whitespace().next()?;
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    Some((version.to_owned(), version[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::tests::fake_installation;

    #[test]
    fn versions_of_releases_packages_and_betas() {
        let parse = |said| parse_version(said).map(|(version, major)| format!("{version} {major}"));
        assert_eq!(parse("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n").unwrap(), "15.13 15");
        assert_eq!(parse("postgres (PostgreSQL) 18beta1\n").unwrap(), "18beta1 18");
        assert_eq!(parse("postgres (PostgreSQL) 19devel\n").unwrap(), "19devel 19");
        assert_eq!(parse("postgres (PostgreSQL) 9.6.24").unwrap(), "9.6.24 9");
        assert_eq!(parse("command not found"), None);
    }

    #[test]
    fn links_are_resolved_to_the_directory_that_counts() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("lib/15/bin");
        fake_installation(&real, "15.3");
        let links = dir.path().join("bin");
        std::fs::create_dir(&links).unwrap();
        std::os::unix::fs::symlink(real.join("initdb"), links.join("initdb")).unwrap();
        let found = Installation::probe(&links, &Account::Caller).unwrap();
        assert_eq!(found.bin_dir(), real.canonicalize().unwrap());
        assert_eq!((found.version(), found.major()), ("15.3", 15));
    }

    #[test]
    fn the_reason_says_what_is_missing_or_too_old() {
        let dir = tempfile::tempdir().unwrap();
        fake_installation(dir.path(), "13.9");
        let reason = Installation::probe(dir.path(), &Account::Caller).unwrap_err();
        assert_eq!(reason, "PostgreSQL 13.9 is older than 14");
        std::fs::remove_file(dir.path().join("postgres")).unwrap();
        let reason = Installation::probe(dir.path(), &Account::Caller).unwrap_err();
        assert_eq!(reason, "postgres not in it");
        let reason = Installation::probe(&dir.path().join("none"), &Account::Caller).unwrap_err();
        assert_eq!(reason, "there is no such directory");
    }
}
