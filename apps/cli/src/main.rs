//! The anywire program: host a lobby, join one by its code, and tools to find out why that does not work.

mod args;
mod clock;
mod forward;
mod ipc;
mod log;
mod panel;
mod plain;
mod run;
mod setup;
mod stop;
#[cfg(test)]
mod testing;
mod text;
mod tools;
mod transfer;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use session::{GameSide, JoinConfig, Publish};

use crate::args::{Cli, Command, CommonArgs, HostArgs, InputError, Inputs, JoinArgs, Source, Ui};
use crate::forward::Forward;
use crate::ipc::{Ipc, files};
use crate::log::Log;
use crate::run::{FAILED, Listing, Run, WRONG};
use crate::setup::{HostParts, IoDir};
use crate::stop::Stop;

fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let legacy = args::is_legacy(typed.first().map(OsString::as_os_str));
    let typed = if legacy { args::translate(typed) } else { typed };
    let cli = match Cli::try_parse_from(typed) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG));
        }
    };
    ExitCode::from(match cli.command {
        Command::Host(args) => host(&args, legacy),
        Command::Join(args) => join(*args, legacy),
        Command::Punch(args) => tools::punch::run(&args),
        Command::Doctor(args) => tools::doctor::run(&args),
        Command::Observe(args) => tools::observe::run(&args),
        Command::Selftest(args) => tools::selftest::run(args.what),
        Command::Bench(args) => tools::bench::run(&args),
        Command::List(args) => tools::list::run(&args),
        Command::Lan(command) => tools::lan::run(&command),
        Command::PublicList { url } => tools::list::original(&url),
        Command::Master { settings } => {
            let name = OsString::from("anywire master");
            return master::main(std::iter::once(name).chain(settings));
        }
    })
}

/// What host and join prepare alike.
struct Prepared {
    run: Run,
    dir: IoDir,
    log: Log,
}

/// Opens the files and everything a run needs beside its session.
fn prepare(common: &CommonArgs, legacy: bool, host: bool) -> Result<Prepared, String> {
    let log = Log::from_env();
    if let Some(line) = common.later.report() {
        log.line(&format!("anywire: {line}"));
    }
    let role = if host { "host" } else { "join" };
    let dir = setup::io_dir(common.io_dir.as_deref(), legacy, role)
        .map_err(|error| format!("cannot use a folder for the game's files: {error}"))?;
    #[cfg(not(windows))]
    let parent = common.parent_pid;
    #[cfg(windows)]
    let parent = None;
    let stop = Stop::new(parent).map_err(|error| format!("cannot catch signals: {error}"))?;
    let [a, b, c, d, e, f, ..] = driver::entropy().map_err(|error| error.to_string())?;
    let ipc = Ipc::create(&dir.path, host, codec::hex(&[a, b, c, d, e, f]), log.clone());
    let forward = Forward::new(&common.forward_log, host, &common.name, Instant::now());
    let ui = common.ui.unwrap_or(if legacy { Ui::Plain } else { Ui::Auto });
    let release = common.release.clone();
    let run = Run { host, release, ui, ipc, forward, listing: None, stop, log: log.clone() };
    Ok(Prepared { run, dir, log })
}

/// The lobby's password, wherever it comes from.
fn password(common: &CommonArgs, inputs: &mut Inputs<impl BufRead>) -> Result<Option<String>, InputError> {
    inputs.read(Source {
        what: "password",
        typed: common.password.clone(),
        file: common.password_file.clone(),
        stdin: common.password_stdin,
        env: std::env::var("ANYWIRE_PASSWORD").ok(),
    })
}

fn complain(why: &str, code: u8) -> u8 {
    Log::from_env().line(&format!("anywire: {why}"));
    code
}

fn host(args: &HostArgs, legacy: bool) -> u8 {
    let common = &args.common;
    let password = match password(common, &mut Inputs::new(io::stdin().lock())) {
        Ok(password) => password,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    let masters = common.master.rendezvous().and_then(|at| Ok((at, common.master.listed(args.relay_only)?)));
    let (rendezvous, listed) = match masters {
        Ok(masters) => masters,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    let Prepared { mut run, dir, log } = match prepare(common, legacy, true) {
        Ok(prepared) => prepared,
        Err(why) => return complain(&why, FAILED),
    };
    let impair = match setup::impairment(common.impair.as_deref(), &dir.path, &log) {
        Ok(impair) => impair,
        Err(why) => return run.fail(&why, WRONG),
    };
    let secret = match secret(args, &dir, &log) {
        Ok(secret) => secret,
        Err(why) => return run.fail(&why, FAILED),
    };
    if let Some((url, on)) = listed {
        run.listing = match row_id(args, &dir) {
            Ok(id) => {
                let dedicated = args.dedicated || args.relay_only;
                Some(Listing { publish: Publish { url, id, dedicated }, on })
            }
            Err(why) => return run.fail(&why, FAILED),
        };
    }
    let stun = setup::stun(&log, rendezvous.as_deref());
    let portmap = setup::portmap(args.portmap, &stun);
    let parts = HostParts { password, secret, impair, stun, vpn: setup::vpn(&log), rendezvous, portmap };
    run.go(setup::host(args, parts, &dir.path))
}

/// A fresh secret, or the kept one of a server that is always on.
fn secret(args: &HostArgs, dir: &IoDir, log: &Log) -> Result<[u8; 12], String> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = driver::entropy().map_err(|error| error.to_string())?;
    let fresh = [a, b, c, d, e, f, g, h, i, j, k, l];
    if !(args.dedicated || args.relay_only) {
        return Ok(fresh);
    }
    let (secret, replaced) = files::kept_secret(&dir.path, fresh)
        .map_err(|error| format!("cannot keep the secret in relay_secret.bin: {error}"))?;
    if replaced {
        log.line("[host] relay_secret.bin was damaged: there is a new secret, and older codes do not work any more");
    }
    Ok(secret)
}

/// The secret name of the lobby's row in public lists: kept by a server that is always on, so that it takes its own
/// row's place after a restart.
fn row_id(args: &HostArgs, dir: &IoDir) -> Result<String, String> {
    let [head @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = driver::entropy().map_err(|e| e.to_string())?;
    if !(args.dedicated || args.relay_only) {
        return Ok(codec::hex(&head));
    }
    let kept = files::kept_id(&dir.path, head);
    kept.map(|id| codec::hex(&id)).map_err(|error| format!("cannot keep the row's name in relay_id.bin: {error}"))
}

fn join(args: JoinArgs, legacy: bool) -> u8 {
    let common = &args.common;
    let mut inputs = Inputs::new(io::stdin().lock());
    let typed = args.code.concat();
    let env = std::env::var("ANYWIRE_CODE").ok();
    let ask = typed.is_empty() && args.code_file.is_none() && env.is_none() && io::stdin().is_terminal();
    if ask {
        let _ = write!(io::stderr(), "Code from your host: ");
    }
    let stdin = typed == "-" || ask;
    let code = inputs.read(Source {
        what: "code",
        typed: Some(typed).filter(|typed| !stdin && !typed.is_empty()),
        file: args.code_file.clone(),
        stdin,
        env,
    });
    let code = code.and_then(|code| code.ok_or(InputError::NoCode));
    let (code, password) = match code.and_then(|code| Ok((code, password(common, &mut inputs)?))) {
        Ok(both) => both,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    drop(inputs);
    let rendezvous = match common.master.rendezvous() {
        Ok(rendezvous) => rendezvous,
        Err(error) => return complain(&error.to_string(), WRONG),
    };
    let Prepared { run, dir, log } = match prepare(common, legacy, false) {
        Ok(prepared) => prepared,
        Err(why) => return complain(&why, FAILED),
    };
    let code = match joincode::read(&code) {
        Ok(code) => code,
        Err(error) => return run.fail(&format!("bad code: {error}"), WRONG),
    };
    let impair = match setup::impairment(common.impair.as_deref(), &dir.path, &log) {
        Ok(impair) => impair,
        Err(why) => return run.fail(&why, WRONG),
    };
    let config = JoinConfig {
        version: common.release.clone(),
        password: password.map(seam::Secret::new),
        mesh: !args.no_mesh,
        timeout: Duration::from_secs_f64(args.timeout),
        game: GameSide::Loopback { bridge: args::bridge(common.game_local_port) },
        stun: setup::stun(&log, rendezvous.as_deref()),
        impair,
        rendezvous,
        guess: common.master.guesses(),
        ..JoinConfig::new(&common.name, code)
    };
    run.go(setup::join(common, args.local_port, config, setup::vpn(&log), &dir.path))
}
