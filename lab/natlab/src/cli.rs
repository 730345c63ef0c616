//! The command line.

// A program for people: what it says goes to standard output.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{self, Handle, Lab, Lock};
use crate::net::{self, Result};
use crate::spec::{self, KINDS, Topology};
use crate::sys::{self, Signals};
use crate::{probe, selftest};

const USAGE: &str = "\
natlab: a small internet on one machine

usage: natlab [--lab NAME] COMMAND

  up [-f FILE] [PART...]     start a lab and leave it running; does nothing when
                             the same lab is up, replaces a different one
  with [-f FILE] [PART...] -- CMD...
                             start a lab, run CMD beside it, end it
  down                       end the lab and remove all that is left of it
  gc                         remove what ended or crashed labs have left
  exec NODE -- CMD...        run a command inside a node
  list                       the labs of this machine
  nodes                      the lab's nodes with their addresses
  status                     packet counters of every link
  nat NAME                   the mappings of a home or carrier
  set NAME key=value...      change a link or a NAT while it runs
  reset NAME                 restart a router: its mappings are gone
  renumber NAME [IP]         give a router another public address
  rebind NAME                every flow of a router gets another outside port
  roam HOST HOME             plug a host into another home's network
  probe HOST                 find out how the NAT in front of a host behaves
  punch HOST HOST            try to punch a UDP (and a TCP) hole
  selftest [--no-kernel]     prove that every kind behaves as named
  kinds                      the kinds of router
  example                    print the topology used when none is given

A PART is one line of a topology ('home a kind=symmetric hosts=alice,alan') or
its short form NAME=KIND[,key=value...] ('alice=symmetric,delay=20ms,upnp').
The name of a lab is NAME, or $NATLAB, or 'default' ('with' takes one of its own).
CMD finds $NATLAB set, so that 'natlab exec' in it means the same lab.
";

const EXAMPLE: &str = "\
# Two hosts at home a, one behind each other kind of router.
home a         kind=port-restricted hosts=alice,alan upnp delay=10ms jitter=2ms
home b         kind=symmetric       hosts=bob
home c         kind=full-cone       hosts=carol hairpin
home d         kind=restricted-cone hosts=dave
home o         kind=open            hosts=olga,oscar
home w         kind=udp-blocked     hosts=wendy
carrier isp    kind=port-restricted hairpin
home m         kind=port-restricted hosts=mike via=isp
home n         kind=port-restricted hosts=nina via=isp
vlan vpn       net=25.0.0.0/8       hosts=alice,bob,mike
";

/// The `natlab` program. Exit code 2 means that natlab itself failed.
pub fn main() -> ExitCode {
    sys::end_on_closed_pipe();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(args) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("natlab: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(mut args: Vec<String>) -> Result<ExitCode> {
    let mut chosen = std::env::var("NATLAB").ok();
    if args.first().is_some_and(|a| a == "--lab") {
        if args.len() < 2 {
            return Err("--lab needs a name".into());
        }
        chosen = Some(args[1].clone());
        args.drain(..2);
    }
    let name = chosen.clone().unwrap_or_else(|| "default".into());
    lab::check_lab_name(&name)?;
    let Some(command) = args.first().cloned() else {
        print!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let rest = &args[1..];
    let attach = || Handle::attach(&name);
    let done = Ok(ExitCode::SUCCESS);
    match command.as_str() {
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            done
        }
        "kinds" => {
            for (kind, text) in KINDS {
                println!("{kind:<16} {text}");
            }
            done
        }
        "example" => {
            print!("{EXAMPLE}");
            done
        }
        "up" => up(&name, &topology(rest)?),
        "serve" => serve(&name, rest),
        "with" => {
            let own = format!("with-{}", std::process::id());
            with(chosen.as_ref().unwrap_or(&own), rest)
        }
        "down" => {
            net::check_machine()?;
            let _lock = Lock::take()?;
            down(&name)?;
            done
        }
        "gc" => {
            net::check_machine()?;
            for lab in lab::remove_left_behind(&Lock::take()?)? {
                println!("removed {lab}");
            }
            done
        }
        "exec" => exec(&attach()?, rest),
        "list" => {
            for (lab, owner) in lab::known_labs() {
                match owner {
                    Some(pid) => println!("{lab} up, process {pid}"),
                    None => println!("{lab} left behind (remove with 'natlab --lab {lab} down')"),
                }
            }
            done
        }
        "nodes" => {
            nodes(&attach()?);
            done
        }
        "status" | "nat" | "set" | "reset" | "renumber" => {
            print!("{}", attach()?.control(&args.join(" "))?);
            done
        }
        "rebind" => {
            let [home] = rest else {
                return Err("rebind needs one home".into());
            };
            attach()?.rebind(home)?;
            done
        }
        "roam" => {
            let [host, home] = rest else {
                return Err("roam needs a host and a home".into());
            };
            println!("{}", attach()?.roam(host, home)?);
            done
        }
        "probe" => {
            let [host] = rest else {
                return Err("probe needs one host".into());
            };
            show(&attach()?, host)?;
            done
        }
        "punch" => {
            let [a, b] = rest else {
                return Err("punch needs two hosts".into());
            };
            let lab = attach()?;
            let udp = probe::punch(&lab, a, b, Duration::from_secs(3))?;
            let tcp = probe::tcp_punch(&lab, a, b, Duration::from_secs(3))?;
            let word = |b: bool| if b { "connected" } else { "failed" };
            println!("udp {}\ntcp {}", word(udp), word(tcp));
            Ok(if udp { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        "selftest" => {
            let kernel = match rest {
                [] => true,
                [a] if a == "--no-kernel" => false,
                _ => return Err("selftest takes only --no-kernel".into()),
            };
            let good = selftest::run(kernel)?;
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        other => {
            let known = [
                "up", "with", "down", "gc", "exec", "list", "nodes", "status", "nat", "set", "reset", "renumber",
                "probe", "punch", "selftest", "kinds", "example", "help",
            ];
            Err(spec::unknown("command", other, &known))
        }
    }
}

/// The topology text that `-f FILE` and PART arguments make.
fn topology(args: &[String]) -> Result<String> {
    let mut text = String::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "-f" {
            let file = words.next().ok_or("-f needs a file ('-' for standard input)")?;
            if file == "-" {
                std::io::stdin().read_to_string(&mut text).map_err(|e| format!("cannot read standard input: {e}"))?;
            } else {
                text += &std::fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?;
            }
            if !text.ends_with('\n') {
                text.push('\n');
            }
        } else if word.starts_with('-') {
            return Err(format!("unknown option '{word}'"));
        } else {
            text += &spec::expand(word);
            text.push('\n');
        }
    }
    Ok(if text.is_empty() { EXAMPLE.to_string() } else { text })
}

fn up(name: &str, text: &str) -> Result<ExitCode> {
    net::check_machine()?;
    Topology::parse(text)?;
    let lock = Lock::take()?;
    if let Ok(running) = Handle::attach(name)
        && running.text() == text
        && running.control("status").is_ok()
    {
        println!("lab '{name}' is up already");
        return Ok(ExitCode::SUCCESS);
    }
    down(name)?;
    lab::remove_left_behind(&lock)?;
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let log_path = lab::state_root().join(format!("{name}.log"));
    let log = File::create(&log_path).map_err(|e| format!("cannot write {}: {e}", log_path.display()))?;
    let mut command = Command::new(program);
    command.args(["--lab", name, "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    sys::own_session(&mut command);
    let mut child = command.spawn().map_err(|e| format!("cannot start the lab: {e}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        let _ = pipe.write_all(text.as_bytes());
    }
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim() == "ready" {
        println!("lab '{name}' is up");
        return Ok(ExitCode::SUCCESS);
    }
    let _ = child.wait();
    let said = std::fs::read_to_string(&log_path).unwrap_or_default();
    let _ = std::fs::remove_file(&log_path);
    Err(format!("the lab did not start: {}", said.trim().trim_start_matches("natlab: ")))
}

/// Ends a running lab by its owner's number, then removes all that is left.
fn down(name: &str) -> Result<()> {
    let dir = lab::state_root().join(name);
    if let Some(pid) = lab::owner(&dir) {
        if pid == std::process::id() as i32 {
            return Err("this process holds the lab itself".into());
        }
        for (signal, patience) in [(sys::SIGTERM, 5000), (sys::SIGKILL, 2000)] {
            sys::signal(pid, signal);
            let end = Instant::now() + Duration::from_millis(patience);
            while lab::owner(&dir) == Some(pid) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    lab::clean(name)?;
    let _ = std::fs::remove_file(lab::state_root().join(format!("{name}.log")));
    Ok(())
}

/// The process behind `up`: holds the lab until it is told to end.
fn serve(name: &str, rest: &[String]) -> Result<ExitCode> {
    if !rest.is_empty() {
        return Err("serve takes its topology from standard input".into());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| format!("cannot read the topology: {e}"))?;
    let signals = Signals::block().map_err(|e| format!("cannot block signals: {e}"))?;
    let lab = Lab::start_locked(name, &text)?;
    println!("ready");
    let _ = std::io::stdout().flush();
    sys::detach_output();
    signals.wait();
    drop(lab);
    Ok(ExitCode::SUCCESS)
}

fn with(name: &str, args: &[String]) -> Result<ExitCode> {
    let at = args.iter().position(|a| a == "--").ok_or("with needs '-- CMD'")?;
    let [program, words @ ..] = &args[at + 1..] else {
        return Err("with needs a command after '--'".into());
    };
    let text = topology(&args[..at])?;
    Topology::parse(&text)?;
    net::check_machine()?;
    let lock = Lock::take()?;
    down(name)?;
    lab::remove_left_behind(&lock)?;
    let signals = Signals::block().map_err(|e| format!("cannot block signals: {e}"))?;
    let lab = Lab::start_locked(name, &text)?;
    drop(lock);
    let mut command = Command::new(program);
    command.args(words).env("NATLAB", name);
    let mut child = command.spawn().map_err(|e| format!("cannot run {program}: {e}"))?;
    let pid = child.id() as i32;
    // Pass on what would have ended us, then end with the command.
    std::thread::spawn(move || {
        loop {
            signals.wait();
            sys::signal(pid, sys::SIGTERM);
        }
    });
    let status = child.wait().map_err(|e| format!("{program}: {e}"))?;
    drop(lab);
    Ok(ExitCode::from(status.code().map_or(1, |c| c as u8)))
}

fn exec(lab: &Handle, args: &[String]) -> Result<ExitCode> {
    let (node, words) = match args {
        [node, dashes, words @ ..] if dashes == "--" => (node, words),
        [node, words @ ..] => (node, words),
        [] => return Err("exec needs a node and a command".into()),
    };
    let [program, words @ ..] = words else {
        return Err("exec needs a command".into());
    };
    let e = lab.command(node, program)?.args(words).exec();
    Err(match e.kind() {
        std::io::ErrorKind::NotFound => format!("there is no program '{program}'"),
        _ => format!("cannot run '{program}' in '{node}': {e}"),
    })
}

fn nodes(lab: &Handle) {
    let t = &lab.topology;
    for s in &t.servers {
        let addrs: Vec<String> = s.addrs.iter().map(ToString::to_string).collect();
        println!("{:<16} server   {} {}", s.name, addrs.join(" "), s.v6);
    }
    for c in &t.carriers {
        println!("{:<16} carrier  {} subscribers in {}/16", c.name, c.wan, c.net);
    }
    for h in &t.homes {
        let via = h.carrier.as_ref().map(|c| format!(" via {c}")).unwrap_or_default();
        println!("{:<16} router   {} kind {}{via}, lan {}/{}", h.router_node(), h.wan, h.kind, h.lan, h.lan_len);
        for x in &h.hosts {
            let v6 = x.v6.map(|a| format!(" {a}")).unwrap_or_default();
            let mut vpn = String::new();
            for v in &t.vlans {
                for (_, ip) in v.members.iter().filter(|(m, _)| *m == x.name) {
                    vpn += &format!(" {ip} on {}", v.name);
                }
            }
            println!("{:<16} host     {}{v6}{vpn}", x.name, x.ip);
        }
    }
}

fn show(lab: &Handle, host: &str) -> Result<()> {
    let b = probe::discover(lab, host, Duration::from_millis(1500))?;
    let yes = |v: bool| if v { "yes" } else { "no" };
    println!("udp          {}", yes(b.udp));
    println!("translated   {}", yes(b.translated));
    println!("mapped       {}", b.mapped.map_or("-".into(), |m| m.to_string()));
    println!("mapping      {}", probe::short(b.mapping, "M"));
    println!("filtering    {}", probe::short(b.filtering, "F"));
    println!("ports        {}", b.ports.map_or("-".into(), |p| format!("{p:?}").to_lowercase()));
    println!("tcp mapping  {}", probe::short(b.tcp_mapping, "M"));
    println!("tcp inbound  {}", b.tcp_in.map_or("-".into(), |p| format!("{p:?}").to_lowercase()));
    Ok(())
}
