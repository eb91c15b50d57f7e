//! The private directory an instance lives in: its layout, who owns it, who may use it at one time.
//!
//! ```text
//! <home>/switchboard.lock   held by the process that runs the instance; also marks the directory as ours
//! <home>/password           the superuser's
//! <home>/postgres.log       of this start; postgres.log.old of the one before
//! <home>/data               what PostgreSQL calls its data directory
//! ```
//!
//! A directory that holds anything else is refused, so that a slip of `--data-dir` changes nothing.
//!
//! When root is the caller, the directory belongs to another account, which may put a link in the place of any file. So
//! nothing is written and no password is read through a link, and what is given away is what was opened.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use rand::RngExt;
use rand::distr::Alphanumeric;

use crate::Error;
use crate::account::{Account, owner_of, temporary_dir};

const LOCK: &str = "switchboard.lock";

/// Long enough that guessing is hopeless, short enough to copy.
const PASSWORD_LENGTH: usize = 24;

/// A private directory, locked by this process. A temporary one is removed when dropped.
#[derive(Debug)]
pub(crate) struct Home {
    root: PathBuf,
    temporary: bool,
    /// Released by the kernel when this process ends, however it ends.
    _lock: Flock<File>,
}

impl Home {
    /// Opens or creates the directory and says which account its PostgreSQL runs as.
    pub(crate) fn open(data_dir: Option<&Path>) -> Result<(Self, Account), Error> {
        match data_dir {
            Some(dir) => Self::kept(dir),
            None => Self::temporary(),
        }
    }

    fn temporary() -> Result<(Self, Account), Error> {
        let account = Account::choose(None)?;
        let parent = temporary_dir(&account);
        let root = tempfile::Builder::new()
            .prefix("switchboard-postgres-")
            .permissions(PermissionsExt::from_mode(0o700))
            .tempdir_in(&parent)
            .map_err(Error::io("create a temporary directory in", &parent))?
            .keep();
        let home = Self::lock(root, true)?;
        home.hand_over(&account)?;
        Ok((home, account))
    }

    fn kept(dir: &Path) -> Result<(Self, Account), Error> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(Error::io("create the data directory", dir))?;
        // Children run in other directories, so a relative path will not do.
        let root = dir.canonicalize().map_err(Error::io("find", dir))?;
        refuse_foreign(&root)?;
        let account = Account::choose(owner_of(&root.join("data")))?;
        let home = Self::lock(root, false)?;
        home.hand_over(&account)?;
        Ok((home, account))
    }

    fn lock(root: PathBuf, temporary: bool) -> Result<Self, Error> {
        let path = root.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { root, temporary, _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => {
                Err(Error::DataDirInUse { holder: postmaster_pid(&root.join("data")), path: root })
            }
            Err((_, errno)) => Err(Error::io("lock", &path)(errno.into())),
        }
    }

    fn hand_over(&self, account: &Account) -> Result<(), Error> {
        let root = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY).bits())
            .open(&self.root)
            .map_err(Error::io("open", &self.root))?;
        root.set_permissions(PermissionsExt::from_mode(0o700))
            .map_err(Error::io("set the permissions of", &self.root))?;
        account.give(&root, &self.root)?;
        account.must_reach(&self.root)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Where `initdb` works. It becomes `data` when it is complete, so that an interrupted start leaves no half of it.
    pub(crate) fn unfinished_data(&self) -> PathBuf {
        self.root.join("data.new")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.root.join("postgres.log")
    }

    pub(crate) fn password_file(&self) -> PathBuf {
        self.root.join("password")
    }

    /// The major version that wrote the data, if there is any yet.
    pub(crate) fn major(&self) -> Option<u32> {
        let version = std::fs::read_to_string(self.data().join("PG_VERSION")).ok()?;
        version.trim().parse().ok()
    }

    /// The superuser's password, made up on the first start.
    pub(crate) fn password(&self, account: &Account) -> Result<String, Error> {
        let path = self.password_file();
        match read_no_link(&path) {
            Ok(password) => return Ok(password.trim().to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path)(error)),
        }
        // Letters and digits need no escaping in a URL.
        let password: String =
            rand::rng().sample_iter(Alphanumeric).take(PASSWORD_LENGTH).map(char::from).collect();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options
            .open(&path)
            .and_then(|mut file| file.write_all(format!("{password}\n").as_bytes()).map(|()| file))
            .map_err(Error::io("write", &path))?;
        account.give(&file, &path)?;
        Ok(password)
    }

    /// A fresh log for this start; the one of the start before is kept next to it.
    pub(crate) fn open_log(&self, account: &Account) -> Result<File, Error> {
        let path = self.log_file();
        match std::fs::rename(&path, path.with_extension("log.old")) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("rename", &path)(error));
            }
            _ => {}
        }
        let log = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("create", &path))?;
        account.give(&log, &path)?;
        Ok(log)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = std::fs::remove_dir_all(&self.root)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %self.root.display(), %error, "a temporary directory could not be removed");
        }
    }
}

/// The postmaster that PostgreSQL's own lock file names.
pub(crate) fn postmaster_pid(data: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

fn read_no_link(path: &Path) -> io::Result<String> {
    let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn refuse_foreign(root: &Path) -> Result<(), Error> {
    let refuse =
        |reason: &str| Err(Error::ForeignDataDir { path: root.to_owned(), reason: reason.to_owned() });
    if root.join("PG_VERSION").exists() {
        return refuse("it is a data directory of another PostgreSQL");
    }
    if root.join(LOCK).exists() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(root).map_err(Error::io("list", root))?.flatten();
    // A freshly made filesystem has lost+found.
    match entries.find(|entry| entry.file_name() != "lost+found") {
        Some(entry) => refuse(&format!("it holds {}", entry.file_name().to_string_lossy())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use nix::unistd::Uid;

    use super::*;

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(dir.path().join("thesis.txt"), "").unwrap();
        let error = Home::open(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("it holds thesis.txt"), "{error}");
        std::fs::write(dir.path().join("PG_VERSION"), "15\n").unwrap();
        let error = Home::open(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("data directory of another PostgreSQL"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn one_process_at_a_time() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = dir.path().join("with space");
        let (first, account) = Home::open(Some(&path)).unwrap();
        let password = first.password(&account).unwrap();
        assert!(matches!(Home::open(Some(&path)), Err(Error::DataDirInUse { holder: None, .. })));
        drop(first);
        let (second, account) = Home::open(Some(&path)).unwrap();
        assert_eq!(second.password(&account).unwrap(), password);
    }

    #[test]
    fn nothing_is_written_and_no_password_read_through_a_link() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (elsewhere, path) = (dir.path().join("elsewhere"), dir.path().join("home"));
        std::fs::create_dir(&path).unwrap();
        symlink(&elsewhere, path.join(LOCK)).unwrap();
        assert!(Home::open(Some(&path)).is_err());
        assert!(!elsewhere.exists());

        std::fs::remove_file(path.join(LOCK)).unwrap();
        std::fs::write(&elsewhere, "a secret").unwrap();
        let (home, account) = Home::open(Some(&path)).unwrap();
        symlink(&elsewhere, home.password_file()).unwrap();
        assert!(home.password(&account).is_err());
        symlink(&elsewhere, home.log_file()).unwrap();
        home.open_log(&account).unwrap().write_all(b"a line").unwrap();
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "a secret");
    }

    /// Between the moment in which it was opened and that in which its owner is changed.
    #[test]
    fn what_is_given_away_is_what_was_opened() {
        if !Uid::effective().is_root() {
            return;
        }
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("file"));
        File::create(&victim).unwrap();
        let file = File::create(&path).unwrap();
        std::fs::rename(&victim, &path).unwrap();
        Account::choose(None).unwrap().give(&file, &path).unwrap();
        assert!(owner_of(&path).unwrap().0.is_root());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }

    #[test]
    fn a_temporary_home_goes_away() {
        let (home, _) = Home::open(None).unwrap();
        let path = home.path().to_owned();
        assert!(path.is_dir());
        drop(home);
        assert!(!path.exists());
    }
}
