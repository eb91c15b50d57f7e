//! `switchboard doctor`: prints what the PostgreSQL adapter finds, worst things told how to mend.

use std::process::ExitCode;

use switchboard_core::types::{NodeId, PayloadLimits};
use switchboard_postgres::doctor::{Finding, Verdict, examine};

use crate::config::DatabaseArgs;
use crate::output;

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,

    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let database = args.database.resolve()?;
    let config = database.for_node(NodeId::parse("doctor")?, PayloadLimits::default());
    let findings = examine(&config).await;
    if args.json {
        output::line(serde_json::to_string_pretty(&findings)?)?;
    } else {
        for finding in &findings {
            output::line(describe(finding))?;
        }
    }
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn describe(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "warning",
        Verdict::Failed => "FAILED",
    };
    let advice = finding.advice.as_ref().map(|advice| format!("; to do: {advice}")).unwrap_or_default();
    format!("{verdict:<8} {:<13} {}{advice}", finding.check, finding.detail)
}
