//! The rounds: every figure once per round, so that figures that are compared are measured side by side.

use crate::accept_search::{self, AcceptSearchBench};
use crate::args::{Args, Figure};
use crate::attack::AttackBench;
use crate::growth::{self, GrowthBench};
use crate::handoff::HandoffBench;
use crate::inbound::InboundBench;
use crate::large_ledger::LargeLedgerBench;
use crate::outbox::OutboxBench;
use crate::paint::PaintBench;
use crate::restart::RestartBench;
use crate::results::{BenchResults, FigureSample, NamedSamples};
use crate::{baselines, disk, figures, postfix, postgres};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::postgres::TemporaryDatabase;
use mailonce_sim::harness::server::{self, ServerProcess, ServerSetup};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A figure that is measured on a running server.
struct ServerFigure {
    figure: Figure,
    unit: &'static str,
    measure: fn(&Args, &ServerProcess) -> Result<FigureSample>,
}

/// What a rate counts.
const REQUESTS: &str = "requests";
const EMAILS: &str = "emails";
const MAILS: &str = "mails";
const CLAIMS: &str = "claims";

/// Where the ledger is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BenchStore {
    Sqlite,
    Postgres,
}

/// A run in progress.
struct BenchSession<'a> {
    args: &'a Args,
    children: &'a ChildProcesses,
    work: &'a Path,
    binary: Result<PathBuf, String>,
    bar: ProgressBar,
    results: BenchResults,
    round: usize,
}

/// Measures everything that was asked for.
pub(crate) fn run(args: &Args, children: &ChildProcesses, work: &Path) -> Result<BenchResults> {
    let per_round = args.figures().into_iter().map(|figure| match figure {
        Figure::Growth => args.growth.len(),
        Figure::AcceptSearch => 2 * accept_search::PAIRS,
        _ => 1,
    });
    let steps = (per_round.sum::<usize>() + 1) * args.rounds();
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(ProgressStyle::with_template("{spinner} {bar:30} {pos}/{len} {elapsed} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(250));
    let binary = server::locate_binary(args.server.as_ref()).map_err(|why| format!("{why:#}"));
    let mut bench = BenchSession { args, children, work, binary, bar, results: BenchResults::default(), round: 0 };
    for round in 1..=args.rounds() {
        bench.round = round;
        bench.run_round();
    }
    bench.bar.finish_and_clear();
    Ok(bench.results)
}

impl BenchSession<'_> {
    fn run_round(&mut self) {
        use Figure::{Accept, Batch, Claim, Echo, PgAccept, PgBatch, PgClaim, PgReplay, PgStorm, Replay, Storm};
        let work = self.work;
        self.measure_and_record("fsync", "writes", || Ok(disk::fsync(work)?));
        self.run_baselines();
        let accepting = [
            ServerFigure { figure: Echo, unit: REQUESTS, measure: figures::echo },
            ServerFigure { figure: Accept, unit: EMAILS, measure: figures::accept },
            ServerFigure { figure: Batch, unit: EMAILS, measure: figures::batch },
        ];
        self.measure_group(BenchStore::Sqlite, true, &accepting);
        let repeating = [
            ServerFigure { figure: Replay, unit: REQUESTS, measure: figures::replay },
            ServerFigure { figure: Claim, unit: CLAIMS, measure: figures::claim },
            ServerFigure { figure: Storm, unit: REQUESTS, measure: figures::measure_storm },
        ];
        self.measure_group(BenchStore::Sqlite, false, &repeating);
        self.pgbench();
        let accepting = [
            ServerFigure { figure: PgAccept, unit: EMAILS, measure: figures::accept },
            ServerFigure { figure: PgBatch, unit: EMAILS, measure: figures::batch },
        ];
        self.measure_group(BenchStore::Postgres, true, &accepting);
        let repeating = [
            ServerFigure { figure: PgReplay, unit: REQUESTS, measure: figures::replay },
            ServerFigure { figure: PgClaim, unit: CLAIMS, measure: figures::claim },
            ServerFigure { figure: PgStorm, unit: REQUESTS, measure: figures::measure_storm },
        ];
        self.measure_group(BenchStore::Postgres, false, &repeating);
        self.outbox();
        self.handoff(Figure::Handoff);
        self.postfix();
        self.handoff(Figure::PgHandoff);
        self.restart();
        self.inbound();
        self.attack();
        self.growth();
        self.accept_search();
        self.large_ledger(BenchStore::Sqlite, Figure::List1m, Figure::Search1m);
        self.large_ledger(BenchStore::Postgres, Figure::PgList1m, Figure::PgSearch1m);
        self.paint();
    }

    fn run_baselines(&mut self) {
        let (args, children, work, round) = (self.args, self.children, self.work, self.round);
        if args.wants(Figure::Redis) {
            self.measure_and_record(Figure::Redis.name(), REQUESTS, || baselines::redis(args));
        }
        if args.wants(Figure::Seeds) {
            let name = format!("seeds_{round}");
            self.measure_and_record(Figure::Seeds.name(), EMAILS, || baselines::seeds(args, children, work, &name));
        }
    }

    fn pgbench(&mut self) {
        let (args, work, name) = (self.args, self.work, format!("pgbench_{}", self.round));
        if args.wants(Figure::Pgbench) {
            self.measure_and_record(Figure::Pgbench.name(), "transactions", || postgres::pgbench(args, work, &name));
        }
        if args.wants(Figure::AdvisoryLock) {
            let name = format!("advisory_lock_{}", self.round);
            let unit = "transactions";
            self.measure_and_record(Figure::AdvisoryLock.name(), unit, || postgres::advisory_lock(args, work, &name));
        }
    }

    /// Measures the wanted ones of `figures` on one fresh server.
    fn measure_group(&mut self, store: BenchStore, paused: bool, figures: &[ServerFigure]) {
        let args = self.args;
        let wanted: Vec<_> = figures.iter().filter(|one| args.wants(one.figure)).collect();
        if wanted.is_empty() {
            return;
        }
        if let Err(why) = self.measure_on_server(store, paused, &wanted) {
            let why = format!("{why:#}");
            for ServerFigure { figure, unit, .. } in wanted {
                if self.results.row(figure.name()).is_none_or(|row| row.rounds.len() < self.round) {
                    self.measure_and_record(figure.name(), unit, || Err(anyhow::anyhow!(why.clone())));
                }
            }
        }
    }

    fn measure_on_server(&mut self, store: BenchStore, paused: bool, wanted: &[&ServerFigure]) -> Result<()> {
        let args = self.args;
        let binary = self.binary.clone().map_err(anyhow::Error::msg)?;
        let data = tempfile::Builder::new().prefix("data").tempdir_in(self.work)?;
        let name = format!("mailonce_{}_{}", self.round, if paused { "accept" } else { "replay" });
        let database = match store {
            BenchStore::Sqlite => None,
            BenchStore::Postgres => Some(args.postgres()?.create_database(&name)?),
        };
        let url = database.as_ref().map(|database| database.url.as_str());
        self.bar.set_message(format!("starting, round {}", self.round));
        let server = ServerSetup {
            binary: &binary,
            data: data.path(),
            store: url,
            paused,
            env: &[("MAILONCE_BENCH_ECHO", "1".into())],
        }
        .start(self.children)?;
        for ServerFigure { figure, unit, measure } in wanted {
            self.measure_and_record(figure.name(), unit, || measure(args, &server));
        }
        if let Err(why) = server.terminate() {
            self.print_line(&format!("after {}: {why:#}", wanted[wanted.len() - 1].figure.name()));
        }
        database.map_or(Ok(()), TemporaryDatabase::drop_database)
    }

    /// Draining an outbox in another database.
    fn outbox(&mut self) {
        let (args, children, work, round) = (self.args, self.children, self.work, self.round);
        if !args.wants(Figure::Outbox) {
            return;
        }
        let binary = self.binary.clone();
        self.measure_and_record(Figure::Outbox.name(), EMAILS, || {
            let binary = &binary.map_err(anyhow::Error::msg)?;
            OutboxBench { args, children, binary, work, round }.measure()
        });
    }

    /// Hand-off by SMTP to a sink, with the ledger where the figure has it.
    fn handoff(&mut self, figure: Figure) {
        let (args, children, work, round) = (self.args, self.children, self.work, self.round);
        if !args.wants(figure) {
            return;
        }
        let binary = self.binary.clone();
        self.measure_and_record(figure.name(), EMAILS, || {
            let binary = &binary.map_err(anyhow::Error::msg)?;
            let database = match figure {
                Figure::PgHandoff => Some(args.postgres()?.create_database(&format!("mailonce_{round}_handoff"))?),
                _ => None,
            };
            let store = database.as_ref().map(|database| database.url.as_str());
            let sample = HandoffBench { args, children, binary, work, store }.measure()?;
            database.map_or(Ok(()), TemporaryDatabase::drop_database)?;
            Ok(sample)
        });
    }

    fn postfix(&mut self) {
        let (args, children, work) = (self.args, self.children, self.work);
        if !args.wants(Figure::Postfix) {
            return;
        }
        if postfix::can_start() {
            self.measure_and_record(Figure::Postfix.name(), EMAILS, || postfix::measure(args, children, work));
        } else {
            self.skip(Figure::Postfix, "a Postfix can be started by root alone");
        }
    }

    fn restart(&mut self) {
        let (args, children, work) = (self.args, self.children, self.work);
        if args.wants(Figure::Restart) {
            let binary = self.binary.clone();
            self.measure_and_record(Figure::Restart.name(), EMAILS, || {
                let binary = &binary.map_err(anyhow::Error::msg)?;
                RestartBench { args, children, binary, work }.measure()
            });
        }
    }

    /// Mail that comes in, and Postfix beside it.
    fn inbound(&mut self) {
        type Measure = fn(&InboundBench<'_>) -> Result<FigureSample>;
        let (args, children, work) = (self.args, self.children, self.work);
        let figures: [(Figure, Measure); 4] = [
            (Figure::SmtpIn, |inbound| inbound.measure_smtp_in()),
            (Figure::Dot, |inbound| inbound.measure_dot()),
            (Figure::Wait, |inbound| inbound.measure_wait()),
            (Figure::Waiters, |inbound| inbound.measure_waiters()),
        ];
        for (figure, measure) in figures {
            if !args.wants(figure) {
                continue;
            }
            let binary = self.binary.clone();
            self.measure_and_record(figure.name(), MAILS, || {
                let binary = &binary.map_err(anyhow::Error::msg)?;
                measure(&InboundBench { args, children, binary, work })
            });
        }
        if args.wants(Figure::PostfixIn) {
            if postfix::can_start() {
                self.measure_and_record(Figure::PostfixIn.name(), MAILS, || {
                    postfix::measure_accept(args, children, work)
                });
            } else {
                self.skip(Figure::PostfixIn, "a Postfix can be started by root alone");
            }
        }
    }

    /// Honest callers alone, and beside an attack.
    fn attack(&mut self) {
        let (args, children, work) = (self.args, self.children, self.work);
        for (figure, attacked) in [(Figure::Honest, false), (Figure::Attacked, true)] {
            if args.wants(figure) {
                let binary = self.binary.clone();
                self.measure_and_record(figure.name(), EMAILS, || {
                    let binary = &binary.map_err(anyhow::Error::msg)?;
                    AttackBench { args, children, binary, work, attacked }.measure()
                });
            }
        }
    }

    fn growth(&mut self) {
        let (args, children, work, round) = (self.args, self.children, self.work, self.round);
        if !args.wants(Figure::Growth) {
            return;
        }
        for keys in args.growth.iter().copied() {
            let binary = self.binary.clone();
            self.measure_and_record(&growth::name(keys), EMAILS, || {
                let binary = &binary.map_err(anyhow::Error::msg)?;
                GrowthBench { args, children, binary, work, keys }.measure(round)
            });
        }
    }

    /// Accepting with search off and on.
    fn accept_search(&mut self) {
        let (args, children, work) = (self.args, self.children, self.work);
        if !args.wants(Figure::AcceptSearch) {
            return;
        }
        for search_enabled in (0..accept_search::PAIRS).flat_map(accept_search::order) {
            let binary = self.binary.clone();
            self.measure_and_record(accept_search::row_name(search_enabled), EMAILS, || {
                let binary = &binary.map_err(anyhow::Error::msg)?;
                AcceptSearchBench { args, children, binary, work, search_enabled }.measure()
            });
        }
    }

    /// Lists and searches in a ledger of one store. Filling it takes minutes, so it happens in the first round alone.
    fn large_ledger(&mut self, store: BenchStore, list: Figure, search: Figure) {
        let (args, children, work) = (self.args, self.children, self.work);
        let wanted = |figure| Some(figure).filter(|figure| args.wants(*figure));
        let (list, search) = (wanted(list), wanted(search));
        let Some(first) = list.or(search).filter(|_| self.round == 1) else { return };
        self.bar.set_message(format!("filling the ledger of {}", first.name()));
        let binary = self.binary.clone();
        let measure = || {
            let binary = &binary.map_err(anyhow::Error::msg)?;
            let database = match store {
                BenchStore::Sqlite => None,
                BenchStore::Postgres => Some(args.postgres()?.create_database("mailonce_large")?),
            };
            LargeLedgerBench { args, children, binary, work, list, search, database }.measure()
        };
        self.record_rows(first, measure());
    }

    /// First paint of the dashboard.
    fn paint(&mut self) {
        let (args, children, work) = (self.args, self.children, self.work);
        if args.wants(Figure::Paint) {
            self.bar.set_message(format!("paint, round {}", self.round));
            let binary = self.binary.clone();
            let measure = || {
                let binary = &binary.map_err(anyhow::Error::msg)?;
                PaintBench { args, children, binary, work }.measure()
            };
            self.record_rows(Figure::Paint, measure());
        }
    }

    /// Notes the rows of a figure that has several, or why there are none.
    fn record_rows(&mut self, figure: Figure, rows: Result<NamedSamples>) {
        match rows {
            Ok(rows) => {
                self.bar.inc_length(rows.len() as u64);
                for (name, sample) in rows {
                    self.measure_and_record(&name, REQUESTS, || sample);
                }
            }
            Err(why) => self.measure_and_record(figure.name(), REQUESTS, || Err(why)),
        }
    }

    /// Measures one figure and notes what came of it.
    fn measure_and_record(&mut self, name: &str, unit: &'static str, measure: impl FnOnce() -> Result<FigureSample>) {
        let which = format!("{name}, round {} of {}", self.round, self.args.rounds());
        self.bar.set_message(which.clone());
        let outcome = measure().map_err(|why| format!("{why:#}"));
        match &outcome {
            Ok(sample) if self.bar.is_hidden() => {
                self.print_line(&format!("{which}: {}", crate::report::rate(sample.rate, unit)));
            }
            Ok(_) => {}
            Err(why) => self.print_line(&format!("{which}: {why}")),
        }
        self.results.push(name, unit, outcome);
        self.bar.inc(1);
    }

    /// Says that a figure cannot be measured here.
    fn skip(&mut self, figure: Figure, why: &str) {
        self.print_line(&format!("{} is not measured: {why}", figure.name()));
        self.results.skip(figure.name(), EMAILS, why);
        self.bar.inc(1);
    }

    fn print_line(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}
