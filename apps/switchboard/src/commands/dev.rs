//! `switchboard dev`: a private PostgreSQL and a few nodes, up in seconds, gone with Ctrl-C.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, value_parser};
use switchboard_embedded_postgres::{Options, PrivatePostgres};
use switchboard_postgres::Dsn;
use tokio::time::{sleep, timeout};

use crate::cli::{Cli, Command};
use crate::config::{ADMIN_TOKEN, AdminToken, HttpAddr, ServeConfig};
use crate::dev::{Nodes, Progress, Recipe, choose_ports, summary, wait_until_ready};
use crate::output;
use crate::stop::Stop;
use crate::telemetry;

/// The token of a development cluster unless `ADMIN_TOKEN` says otherwise. Clients assume it for nodes on this machine.
pub(crate) const DEV_TOKEN: &str = "dev";

/// What a node needs beyond its drain timeout to end.
const GRACE: Duration = Duration::from_secs(2);
/// What an interrupted start of PostgreSQL may take to get to where it can be stopped. Its watchdog does it otherwise.
const START: Duration = Duration::from_secs(5);

/// How often to see whether the private PostgreSQL is there.
const LOOK: Duration = Duration::from_millis(200);

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many nodes: 1 to 32.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=32))]
    nodes: u16,

    /// Where the first node serves HTTP; the others take the ports that follow. Port 0 takes free ones.
    ///
    /// Where others than this machine can reach it, clients need the token and `ADMIN_TOKEN` must be set.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4000", value_parser = HttpAddr::parse)]
    http: HttpAddr,

    /// Keep PostgreSQL's data here, for the next time. Without it, data is temporary.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Show what the nodes log.
    #[arg(long)]
    logs: bool,

    /// Use this PostgreSQL instead of a private one.
    ///
    /// The programs of a private one are those in the directory `SWITCHBOARD_PG_BIN`; without it those that are installed, or
    /// that a download brings.
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        conflicts_with = "data_dir"
    )]
    database_url: Option<OsString>,

    /// The admin token of the nodes. [default: dev]
    #[arg(long, env = "ADMIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    admin_token: Option<OsString>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let open_access = args.http.is_loopback();
    if !open_access && args.admin_token.is_none() {
        let rule = format!("required with --http {}, which others can reach", args.http);
        return Err(ADMIN_TOKEN.missing(&rule).into());
    }
    let token = args.admin_token.as_ref().map(|token| ADMIN_TOKEN.parse_secret(token, AdminToken::parse));
    let token = token.transpose()?.map_or_else(|| DEV_TOKEN.to_owned(), |token| token.reveal().to_owned());
    let node_config = check_environment(args.database_url.as_ref())?;
    telemetry::init_with_progress();
    let stop = Stop::listen(false)?;
    let addrs = choose_ports(&args.http, args.nodes).await?;

    let Some(database) = Database::open(&args, &stop).await? else { return Ok(ExitCode::SUCCESS) };
    let recipe = Recipe {
        program: std::env::current_exe().context("cannot find this program")?,
        database_url: database.url.clone(),
        database_is_private: database.private.is_some(),
        admin_token: token,
        open_access,
        origins: origins(&addrs),
        show_logs: args.logs,
    };
    let mut nodes = Nodes::default();
    let outcome = tokio::select! {
        outcome = live(&mut nodes, &recipe, addrs, &database) => outcome.map(|()| ExitCode::FAILURE),
        () = database.lost() => {
            let database = &database.description;
            output::note(format_args!("error: the private PostgreSQL ({database}) is gone; stopping the nodes"));
            Ok(ExitCode::FAILURE)
        }
        _ = stop.asked() => Ok(ExitCode::SUCCESS),
    };
    tokio::select! {
        () = nodes.stop(node_config.cluster.drain_timeout + GRACE) => {}
        _ = stop.insisted() => nodes.stop(Duration::ZERO).await,
    }
    database.close().await?;
    outcome
}

/// Starts the nodes and watches them. Returns when none is left; never otherwise.
async fn live(
    nodes: &mut Nodes,
    recipe: &Recipe,
    addrs: Vec<HttpAddr>,
    database: &Database,
) -> anyhow::Result<()> {
    let count = match addrs.len() {
        1 => "1 node".to_owned(),
        several => format!("{several} nodes"),
    };
    let progress = Progress::step(&format!("starting {count}"));
    for addr in addrs {
        nodes.start(recipe, addr)?;
    }
    progress.run(wait_until_ready(nodes, &progress)).await?;
    drop(progress);
    let program = std::env::args().next().unwrap_or_else(|| "switchboard".to_owned());
    output::line(summary(nodes, recipe, &database.description, &database.shown_url, &program))?;
    // Scripts wait for this line.
    output::line(format_args!("cluster ready: {count}"))?;
    while let Some(death) = nodes.next_death().await {
        output::note(death);
    }
    anyhow::bail!("no node is left")
}

/// The PostgreSQL that the nodes share.
struct Database {
    url: String,
    /// Without the password of one that was given: it is not ours to print.
    shown_url: String,
    description: String,
    /// `None` if it was given.
    private: Option<PrivatePostgres>,
}

impl Database {
    /// Takes the given one or starts a private one. `None` if the person at the terminal lost patience.
    async fn open(args: &Args, stop: &Stop) -> anyhow::Result<Option<Self>> {
        if let Some(url) = args.database_url.as_ref().and_then(|url| url.to_str()) {
            let shown_url = Dsn::parse(url)?.to_string();
            output::note(format_args!(
                "using {shown_url}, as DATABASE_URL or --database-url says, and no private PostgreSQL"
            ));
            return Ok(Some(Self {
                url: url.to_owned(),
                shown_url,
                description: "as given".to_owned(),
                private: None,
            }));
        }
        let progress = Progress::step("starting a private PostgreSQL");
        let mut start = Box::pin(progress.run(PrivatePostgres::start(Options {
            data_dir: args.data_dir.clone(),
            configuration: vec![("max_connections".to_owned(), max_connections(args.nodes).to_string())],
            ..Options::default()
        })));
        let postgres = tokio::select! {
            postgres = &mut start => postgres?,
            _ = stop.asked() => {
                if let Ok(Ok(postgres)) = timeout(START, start).await {
                    postgres.stop().await?;
                }
                return Ok(None);
            }
        };
        let kept = match &args.data_dir {
            Some(dir) => format!("data in {}", dir.display()),
            None => "temporary".to_owned(),
        };
        let version = postgres.installation().version();
        Ok(Some(Self {
            url: postgres.url().to_owned(),
            shown_url: postgres.url().to_owned(),
            description: format!("{version} on port {}, {kept}", postgres.port()),
            private: Some(postgres),
        }))
    }

    /// Returns when the private one has ended. One that was given may come back.
    async fn lost(&self) {
        let Some(postgres) = &self.private else { return std::future::pending().await };
        while postgres.postmaster_pid().is_some() {
            sleep(LOOK).await;
        }
    }

    async fn close(self) -> anyhow::Result<()> {
        match self.private {
            Some(postgres) => Ok(postgres.stop().await?),
            None => Ok(()),
        }
    }
}

/// The web pages that may use any node: those of the nodes themselves, by whichever name, and those that the environment lists.
fn origins(addrs: &[HttpAddr]) -> String {
    let own = addrs.iter().flat_map(|addr| [addr.local_url(), format!("http://localhost:{}", addr.port())]);
    match std::env::var("AUTH_ORIGINS") {
        Ok(all) if all == "*" => all,
        listed => listed.into_iter().chain(own).collect::<Vec<_>>().join(","),
    }
}

/// Refuses what the nodes would refuse, before anything is started.
fn check_environment(database_url: Option<&OsString>) -> anyhow::Result<ServeConfig> {
    let placeholder = OsString::from("postgres://localhost/postgres");
    let mut flags: Vec<OsString> = ["switchboard", "serve"].map(Into::into).to_vec();
    // What each node is given anew, whatever the environment says.
    flags.extend(
        ["--http-addr=127.0.0.1:0", "--cluster-node-id=node-1", "--cluster-endpoint=127.0.0.1:1"]
            .map(Into::into),
    );
    if cfg!(feature = "mesh") {
        flags.push("--mesh-addr=:1".into());
    }
    flags.extend(["--database-url".into(), database_url.unwrap_or(&placeholder).clone()]);
    match Cli::try_parse_from(flags)?.command {
        Command::Serve(args) => Ok(args.resolve()?.0),
        _ => anyhow::bail!("the command line for nodes is not one"),
    }
}

/// Room for the nodes, and for people with `psql`.
fn max_connections(nodes: u16) -> u16 {
    100.max(nodes * 6 + 20)
}
