//! A cluster on a schema of its own: nodes in this process, SQL from outside.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};
use switchboard_core::health::HealthRegistry;
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{NodeId, Stats};
use switchboard_postgres::{Dsn, Postgres, PostgresConfig, PostgresError, SchemaName};
use switchboard_testkit::postgres::{self, PrivatePostgres};

/// Short enough to wait for, long enough for two busy cores.
pub(crate) fn quick() -> Timing {
    Timing::new(Duration::from_millis(300), Duration::from_millis(1500)).unwrap()
}

/// One schema on one server.
pub(crate) struct Cluster {
    pub(crate) url: String,
    pub(crate) schema: SchemaName,
    pub(crate) timing: Timing,
    own: Option<PrivatePostgres>,
}

impl Cluster {
    /// On the server that all tests share.
    pub(crate) async fn new() -> Self {
        let url = postgres::shared_url().await;
        Self { url, schema: schema(), timing: quick(), own: None }
    }

    /// On a server of its own, for tests that stop, freeze or crash it.
    pub(crate) async fn with_own_server(configuration: &[(&str, &str)]) -> Self {
        let server = postgres::own(configuration).await;
        Self { url: server.url().to_owned(), schema: schema(), timing: quick(), own: Some(server) }
    }

    pub(crate) fn server(&self) -> &PrivatePostgres {
        self.own.as_ref().expect("a cluster with its own server")
    }

    pub(crate) fn config(&self, name: &str) -> PostgresConfig {
        let mut config = PostgresConfig::new(Dsn::parse(&self.url).unwrap(), NodeId::parse(name).unwrap());
        config.schema = self.schema.clone();
        config
    }

    /// The ports alone, without a node.
    pub(crate) async fn ports(&self, name: &str) -> Postgres {
        self.try_ports(self.config(name)).await.unwrap()
    }

    pub(crate) async fn try_ports(&self, config: PostgresConfig) -> Result<Postgres, PostgresError> {
        Postgres::connect(config, &StatsRegistry::default(), &HealthRegistry::default()).await
    }

    /// A node that has joined.
    pub(crate) async fn node(&self, name: &str) -> Member {
        let member = self.start(self.config(name)).await;
        member.node.joined().await.unwrap();
        member
    }

    /// A node that may still be joining.
    pub(crate) async fn start(&self, config: PostgresConfig) -> Member {
        let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
        let node_id = config.node_id.clone();
        let ports = Postgres::connect(config, &stats, &health).await.unwrap();
        let config = NodeConfig {
            node_id,
            endpoint: "127.0.0.1:4000".parse().unwrap(),
            meta: Stats::default(),
            timing: self.timing,
            on_eviction: OnEviction::Stop,
        };
        let node = Node::spawn(ports.registry(), config, stats.clone());
        Member { ports: Arc::new(ports), node, stats, health }
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Runs a statement from outside; `{schema}` is replaced.
    pub(crate) async fn sql(&self, statement: &str) -> Vec<PgRow> {
        self.sql_on(&mut self.connection().await, statement).await
    }

    pub(crate) async fn sql_on(&self, connection: &mut PgConnection, statement: &str) -> Vec<PgRow> {
        let statement = statement.replace("{schema}", &format!("\"{}\"", self.schema));
        sqlx::query(AssertSqlSafe(statement)).persistent(false).fetch_all(connection).await.unwrap()
    }

    pub(crate) async fn count(&self, statement: &str) -> i64 {
        self.sql(statement).await[0].get(0)
    }

    /// Ends the server processes behind connections of this purpose (`registry`, `listener` …) of nodes on this server.
    pub(crate) async fn terminate(&self, purpose: &str) {
        let statement = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'switchboard {purpose}%' AND pid <> pg_backend_pid()"
        );
        self.sql(&statement).await;
    }
}

fn schema() -> SchemaName {
    SchemaName::parse(&format!("t_{:016x}", rand::random::<u64>())).unwrap()
}

/// A node in this process.
pub(crate) struct Member {
    pub(crate) ports: Arc<Postgres>,
    pub(crate) node: Node,
    pub(crate) stats: StatsRegistry,
    pub(crate) health: HealthRegistry,
}

impl Member {
    /// Waits until this node sees a cluster of `size`.
    pub(crate) async fn sees(&self, size: usize) {
        let mut membership = self.node.membership();
        let seen = membership.wait_for(|view| view.size() == size);
        let waited = tokio::time::timeout(Duration::from_secs(20), seen).await;
        assert!(waited.is_ok(), "sees {} nodes, not {size}", self.node.membership().borrow().size());
    }

    /// As if the process was killed: nothing is said to anybody.
    pub(crate) fn kill(self) {
        drop(self.node);
        drop(self.ports);
    }
}
