//! Fetches PostgreSQL when none is installed, by the `postgresql_embedded` crate, once per user.
//!
//! Only the fetching is that crate's: it would run the server through `pg_ctl` with `fsync` off, which is not what a
//! kept data directory needs, and cannot run it as another user. Downloads are verified against the published hash and
//! report progress on their tracing span (a bar, where the subscriber has a `tracing-indicatif` layer).

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postgresql_embedded::{PostgreSQL, Settings, VersionReq};

use crate::account::Account;
use crate::installation::Installation;

/// The major version to fetch when no data directory asks for another.
const MAJOR: u32 = 18;

/// A mirror that stalls must not hang `switchboard dev` for ever.
const PATIENCE: Duration = Duration::from_mins(10);

/// Downloads PostgreSQL into the cache directory, unless it is there already. The reason as text on failure.
pub(crate) async fn fetch(major: Option<u32>, account: &Account) -> Result<Installation, String> {
    let cache = cache_dir(account).ok_or("neither XDG_CACHE_HOME nor HOME is set to an absolute path")?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&cache)
        .map_err(|error| format!("cannot create {}: {error}", cache.display()))?;
    let major = major.unwrap_or(MAJOR);
    tracing::info!(major, cache = %cache.display(), "no PostgreSQL is installed; using a downloaded one");
    let bin_dir = tokio::time::timeout(PATIENCE, install(major, &cache))
        .await
        .map_err(|_| format!("it took longer than {} s", PATIENCE.as_secs()))??;
    Installation::probe(&bin_dir, account).map_err(|reason| format!("{}: {reason}", bin_dir.display()))
}

async fn install(major: u32, cache: &Path) -> Result<PathBuf, String> {
    // A data directory that looks initialised makes `setup` install and do nothing more.
    let scratch = tempfile::tempdir_in(cache).map_err(|error| error.to_string())?;
    std::fs::write(scratch.path().join("postgresql.conf"), "").map_err(|error| error.to_string())?;
    let defaults = Settings::default();
    // Making the defaults creates two directories that nobody would remove.
    let strays = [Some(defaults.data_dir.as_path()), defaults.password_file.parent()];
    for stray in strays.into_iter().flatten() {
        let _ = std::fs::remove_dir(stray);
    }
    let settings = Settings {
        version: VersionReq::parse(&format!("={major}")).map_err(|error| error.to_string())?,
        installation_dir: cache.to_owned(),
        data_dir: scratch.path().to_owned(),
        password_file: scratch.path().join("unused"),
        temporary: false,
        ..defaults
    };
    let mut postgresql = PostgreSQL::new(settings);
    postgresql.setup().await.map_err(|error| format!("{error} ({})", postgresql.settings().releases_url))?;
    Ok(postgresql.settings().binary_dir())
}

/// Where downloads are kept. A root caller's must be reachable for the user PostgreSQL runs as.
fn cache_dir(account: &Account) -> Option<PathBuf> {
    if let Account::Unprivileged { .. } = account {
        return Some(PathBuf::from("/var/cache/switchboard/postgresql"));
    }
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("switchboard").join("postgresql"))
}
