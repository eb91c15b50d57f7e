//! The handle to a private PostgreSQL: starts it, knows how to reach it, does to it what fault tests need, ends it.
//!
//! All work is blocking (signals, waits, files) and runs on Tokio's blocking threads, so that a test with paused time
//! or a busy runtime neither delays nor speeds it up. `Drop` runs the same code in place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::account::Account;
use crate::find::{Surroundings, given, search};
use crate::home::Home;
use crate::server::{Recipe, Server};
use crate::watchdog::{LastWill, Watchdog};
use crate::{Binaries, Error, Installation, Options, StopMode, cluster, download};

/// How long a fast shutdown may take. A kept instance writes back all it has.
const FAST_WITHIN: Duration = Duration::from_mins(1);
/// The same for data that is about to be removed.
const FAST_WITHIN_TEMPORARY: Duration = Duration::from_secs(10);

/// A running PostgreSQL that belongs to this process alone.
///
/// It listens on 127.0.0.1 and ends with its owner: by [`stop`](Self::stop), by being dropped, or by a watchdog process
/// when the owner exits without either, is killed, or panics.
///
/// The methods that are `async` need a Tokio runtime and finish what they began when they are cancelled.
#[derive(Debug)]
pub struct PrivatePostgres {
    url: String,
    port: u16,
    home: PathBuf,
    log_file: PathBuf,
    installation: Installation,
    instance: Arc<Mutex<Option<Instance>>>,
}

/// What there is to stop and to remove; the order of the fields is the order in which they go.
#[derive(Debug)]
struct Instance {
    /// `None` between [`PrivatePostgres::halt`] and [`PrivatePostgres::resume`].
    server: Option<Server>,
    recipe: Recipe,
    home: Home,
    /// Last: it guards until all else is gone.
    watchdog: Watchdog,
}

impl PrivatePostgres {
    /// Finds or fetches PostgreSQL, creates the database cluster if there is none, and returns when it accepts
    /// connections. Takes about a second.
    ///
    /// # Errors
    ///
    /// Every variant of [`Error`] but [`Error::Stopped`]; each says what to do about it. Nothing is left behind.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options { data_dir, port, configuration, binaries } = options;
        let (home, account, watchdog, choice) = blocking(move || {
            let (home, account) = Home::open(data_dir.as_deref())?;
            // First of all, so that a temporary directory does not outlive an owner killed during a long download.
            let watchdog = Watchdog::spawn(last_will(&home))?;
            let choice = choose(&binaries, home.major(), &account)?;
            Ok((home, account, watchdog, choice))
        })
        .await?;
        let installation = match choice {
            Choice::Installed(installation) => installation,
            Choice::Fetch { rejected } => {
                let major = home.major();
                download::fetch(major, &account).await.map_err(|reason| Error::Unobtainable {
                    major,
                    reason,
                    rejected,
                })?
            }
        };
        blocking(move || Self::launch(home, watchdog, installation, account, port, configuration)).await
    }

    fn launch(
        home: Home,
        mut watchdog: Watchdog,
        installation: Installation,
        account: Account,
        port: u16,
        configuration: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        must_match(&home, &installation)?;
        let password = home.password(&account)?;
        let log = home.open_log(&account)?;
        cluster::prepare(&home, &installation, &account, &log, &mut watchdog)?;
        let recipe = Recipe { installation: installation.clone(), account, configuration, log };
        let fixed_port = (port != 0).then_some(port);
        let server = Server::start(&recipe, &home, &mut watchdog, fixed_port)?;
        let port = server.port();
        tracing::debug!(port, version = installation.version(), home = %home.path().display(), "PostgreSQL is ready");
        Ok(Self {
            url: format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres"),
            port,
            home: home.path().to_owned(),
            log_file: home.log_file(),
            installation,
            instance: Arc::new(Mutex::new(Some(Instance { server: Some(server), recipe, home, watchdog }))),
        })
    }

    /// The `DATABASE_URL` of the superuser, as `psql` and every driver take it. Stays valid across restarts.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port on 127.0.0.1. The same across restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The binaries that run it, with their version.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The private directory: the one given in [`Options::data_dir`], or the temporary one.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What PostgreSQL writes about itself.
    pub fn log_file(&self) -> &Path {
        &self.log_file
    }

    /// The pid of the postmaster; `None` while it is not running.
    pub fn postmaster_pid(&self) -> Option<i32> {
        let mut instance = self.instance.lock();
        let server = instance.as_mut()?.server.as_mut()?;
        server.is_running().then(|| server.pid().as_raw())
    }

    /// Stops PostgreSQL for good, fast (sessions are terminated, data is written back), and removes what was temporary.
    /// Once it returns, no process of it is left. Stopping again does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::WillNotDie`] if even SIGKILL does not end it.
    pub async fn stop(&self) -> Result<(), Error> {
        let instance = Arc::clone(&self.instance);
        blocking(move || end(&mut instance.lock())).await
    }

    /// Stops PostgreSQL as asked, but keeps its directory, also a temporary one, and its port for
    /// [`resume`](Self::resume). Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] after [`stop`](Self::stop), [`Error::WillNotDie`] if even SIGKILL does not end it.
    pub async fn halt(&self, mode: StopMode) -> Result<(), Error> {
        self.with_instance(move |instance| instance.halt(mode)).await
    }

    /// Starts PostgreSQL again with the same directory, port and settings, after [`halt`](Self::halt) or a crash. Does
    /// nothing if it is running.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] after [`stop`](Self::stop); otherwise as for [`start`](Self::start).
    pub async fn resume(&self) -> Result<(), Error> {
        let port = self.port;
        self.with_instance(move |instance| instance.resume(port)).await
    }

    /// [`halt`](Self::halt) and [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// Those of the two.
    pub async fn restart(&self, mode: StopMode) -> Result<(), Error> {
        let port = self.port;
        self.with_instance(move |instance| {
            instance.halt(mode)?;
            instance.resume(port)
        })
        .await
    }

    /// Stops every process of PostgreSQL in its tracks (SIGSTOP), as a stalled disk or hypervisor does: connections
    /// stay open, nothing answers. Returns when nothing moves any more. Does nothing if it is not running.
    pub fn freeze(&self) {
        if let Some(server) = self.instance.lock().as_mut().and_then(Instance::running) {
            server.freeze();
        }
    }

    /// Lets a frozen PostgreSQL go on (SIGCONT).
    pub fn thaw(&self) {
        if let Some(server) = self.instance.lock().as_mut().and_then(Instance::running) {
            server.thaw();
        }
    }

    async fn with_instance(
        &self,
        work: impl FnOnce(&mut Instance) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let instance = Arc::clone(&self.instance);
        blocking(move || instance.lock().as_mut().map_or(Err(Error::Stopped), work)).await
    }
}

impl Drop for PrivatePostgres {
    /// Stops PostgreSQL as [`stop`](PrivatePostgres::stop) does. Blocks, usually for some ten milliseconds.
    fn drop(&mut self) {
        if let Err(error) = end(&mut self.instance.lock()) {
            tracing::warn!(%error, "a private PostgreSQL could not be stopped");
        }
    }
}

impl Instance {
    fn running(&mut self) -> Option<&mut Server> {
        let server = self.server.as_mut()?;
        server.is_running().then_some(server)
    }

    fn halt(&mut self, mode: StopMode) -> Result<(), Error> {
        if let Some(server) = self.server.as_mut() {
            server.stop(mode, patience(&self.home))?;
            self.server = None;
            self.watchdog.relax();
        }
        Ok(())
    }

    fn resume(&mut self, port: u16) -> Result<(), Error> {
        if self.running().is_none() {
            self.watchdog.relax();
            self.server = None;
            cluster::forget_stale_postmaster(&self.home.data());
            self.server = Some(Server::start(&self.recipe, &self.home, &mut self.watchdog, Some(port))?);
        }
        Ok(())
    }
}

/// Stops what runs and drops the rest: the directory first, the watchdog last.
fn end(instance: &mut Option<Instance>) -> Result<(), Error> {
    let Some(mut instance) = instance.take() else { return Ok(()) };
    // Whatever happens here, dropping the watchdog makes it try as well.
    instance.halt(StopMode::Fast)
}

/// Where the binaries come from.
enum Choice {
    Installed(Installation),
    Fetch { rejected: Vec<String> },
}

fn choose(binaries: &Binaries, major: Option<u32>, account: &Account) -> Result<Choice, Error> {
    match binaries {
        Binaries::In(bin_dir) => given("the directory", bin_dir, account).map(Choice::Installed),
        Binaries::Download => Ok(Choice::Fetch { rejected: Vec::new() }),
        Binaries::FindOrDownload => {
            let findings = search(&Surroundings::of_this_process(), major, account)?;
            Ok(findings.found.map_or(Choice::Fetch { rejected: findings.rejected }, Choice::Installed))
        }
    }
}

fn must_match(home: &Home, installation: &Installation) -> Result<(), Error> {
    match home.major() {
        Some(wrote) if wrote != installation.major() => Err(Error::WrongMajor {
            data_dir: home.path().to_owned(),
            wrote,
            bin_dir: installation.bin_dir().to_owned(),
            found: installation.major(),
        }),
        _ => Ok(()),
    }
}

/// A kept instance deserves an orderly shutdown even when its owner is killed; a temporary one is to be gone quickly.
fn last_will(home: &Home) -> LastWill<'_> {
    LastWill {
        signal: if home.is_temporary() { "QUIT" } else { "INT" },
        patience: patience(home),
        home: home.path(),
        remove: home.is_temporary(),
    }
}

fn patience(home: &Home) -> Duration {
    if home.is_temporary() { FAST_WITHIN_TEMPORARY } else { FAST_WITHIN }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::RuntimeGone),
        },
    }
}
