//! Decides which user PostgreSQL's programs run as, and prepares every command that is run for an instance.
//!
//! PostgreSQL refuses root. A root caller's instance therefore runs as an unprivileged user: the owner of an existing
//! data directory, else `postgres`, else `nobody`. The switch is made between fork and exec by the standard library, so
//! neither `setpriv` nor `su` is needed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, User};

use crate::Error;

/// Tried in this order when the caller is root. `postgres` exists where PostgreSQL is packaged, `nobody` everywhere.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// All that a child inherits. PG* and LC_* would change what PostgreSQL does, and secrets are none of its business.
const INHERITED: [&str; 5] =
    ["PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"];

/// Who runs PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Account {
    /// The caller itself, an ordinary user.
    Caller,
    /// Another user, because the caller is root.
    Unprivileged {
        /// For messages.
        name: String,
        uid: Uid,
        gid: Gid,
    },
}

impl Account {
    /// The account for an instance whose data, if it exists already, belongs to `owner`.
    pub(crate) fn choose(owner: Option<(Uid, Gid)>) -> Result<Self, Error> {
        if !Uid::effective().is_root() {
            return Ok(Self::Caller);
        }
        let account = match owner {
            Some((uid, gid)) if !uid.is_root() => Self::Unprivileged { name: name_of(uid), uid, gid },
            _ => Self::first_unprivileged()?,
        };
        account.prove()?;
        Ok(account)
    }

    /// A command that runs as this account: away from the terminal's process group, in a directory that always exists,
    /// with a minimal environment.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = detached(program);
        if let Self::Unprivileged { uid, gid, .. } = self {
            // Supplementary groups are dropped along with the user id.
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// Makes this account the owner of a file or directory that the caller opened. `path` is for messages alone: by now it may
    /// lead elsewhere.
    pub(crate) fn give(&self, file: &File, path: &Path) -> Result<(), Error> {
        match self {
            Self::Caller => Ok(()),
            Self::Unprivileged { uid, gid, .. } => fchown(file, Some(uid.as_raw()), Some(gid.as_raw()))
                .map_err(Error::io("change the owner of", path)),
        }
    }

    /// Fails with the directory in the way if this account cannot create files in `dir`.
    pub(crate) fn must_reach(&self, dir: &Path) -> Result<(), Error> {
        let Self::Unprivileged { name, .. } = self else { return Ok(()) };
        // Asked of the system rather than computed: access lists and mount options have a say.
        let reaches = self.command("/bin/sh").args(["-c", r#"cd "$1" && [ -w . ]"#, "sh"]).arg(dir).status();
        match reaches {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Error::Unreachable {
                user: name.clone(),
                path: dir.to_owned(),
                reason: self.obstacle(dir).unwrap_or_else(|| "it may not write there".to_owned()),
            }),
        }
    }

    /// Names the first directory on the way to `path` that this account may not enter.
    pub(crate) fn obstacle(&self, path: &Path) -> Option<String> {
        let Self::Unprivileged { name, uid, gid } = self else { return None };
        let mut on_the_way: Vec<&Path> = path.ancestors().collect();
        on_the_way.reverse();
        let closed = on_the_way.into_iter().find(|dir| {
            std::fs::metadata(dir).is_ok_and(|meta| meta.is_dir() && !may_enter(&meta, *uid, *gid))
        })?;
        Some(format!("{name} may not enter {}", closed.display()))
    }

    fn first_unprivileged() -> Result<Self, Error> {
        UNPRIVILEGED
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .filter(|user| !user.uid.is_root())
            .map(|user| Self::Unprivileged { name: user.name, uid: user.uid, gid: user.gid })
            .ok_or_else(|| Error::NoAccount {
                user: UNPRIVILEGED.join(" or "),
                reason: "there is no such user".to_owned(),
            })
    }

    /// A container without the capabilities to change users should say so here, not as a riddle in the first command.
    fn prove(&self) -> Result<(), Error> {
        let Self::Unprivileged { name, .. } = self else { return Ok(()) };
        match self.command("/bin/sh").args(["-c", ":"]).status() {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::NoAccount { user: name.clone(), reason: error.to_string() }),
        }
    }
}

/// A command in its own process group, so that Ctrl-C in the terminal reaches the owner alone.
pub(crate) fn detached(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").process_group(0).current_dir("/");
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The owner of an existing path.
pub(crate) fn owner_of(path: &Path) -> Option<(Uid, Gid)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid())))
}

/// A temporary directory this account can get to; the one of a root caller may be below a closed home.
pub(crate) fn temporary_dir(account: &Account) -> PathBuf {
    let configured = std::env::temp_dir();
    if configured.is_absolute() && account.must_traverse(&configured) {
        configured
    } else {
        PathBuf::from("/tmp")
    }
}

impl Account {
    fn must_traverse(&self, dir: &Path) -> bool {
        self.obstacle(dir).is_none()
    }
}

fn name_of(uid: Uid) -> String {
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

fn may_enter(meta: &std::fs::Metadata, uid: Uid, gid: Gid) -> bool {
    let mode = meta.permissions().mode();
    let bit = if meta.uid() == uid.as_raw() {
        0o100
    } else if meta.gid() == gid.as_raw() {
        0o010
    } else {
        0o001
    };
    mode & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user id that owns nothing.
    fn stranger() -> Account {
        Account::Unprivileged {
            name: "stranger".into(),
            uid: Uid::from_raw(64_999),
            gid: Gid::from_raw(64_999),
        }
    }

    #[test]
    fn the_first_closed_directory_is_named() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let deep = dir.path().join("deep");
        std::fs::create_dir(&deep).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(
            stranger().obstacle(&deep).unwrap(),
            format!("stranger may not enter {}", dir.path().display())
        );
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        assert_eq!(stranger().obstacle(&deep), None);
    }

    #[test]
    fn children_inherit_no_settings_and_no_secrets() {
        let command = Account::Caller.command("true");
        let kept: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        assert!(kept.iter().all(|name| name == "LC_ALL" || INHERITED.iter().any(|known| name == known)));
    }
}
