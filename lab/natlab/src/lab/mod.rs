//! A lab: its namespaces, its data plane and its services, from start to end.

mod change;
mod plan;
mod program;
mod state;
mod wiring;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::net::{self, Result};
use crate::spec::{STUN_PORTS, Topology};
use crate::sys;

pub use change::Traffic;
pub(crate) use plan::lacks_kernel_nat;
pub use program::Program;
pub(crate) use state::{Lock, check_lab_name, clean, known_labs, owner, remove_left_behind, state_root};

/// A running lab, seen from any process on the machine.
pub struct Handle {
    pub(crate) name: String,
    pub(crate) topology: Topology,
    dir: PathBuf,
}

impl Handle {
    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was started with: parts and first addresses.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Finds a lab that is up.
    pub fn attach(name: &str) -> Result<Handle> {
        check_lab_name(name)?;
        let dir = state_root().join(name);
        if owner(&dir).is_none() {
            return Err(format!("lab '{name}' is not up (start it with 'natlab up')"));
        }
        let text = fs::read_to_string(dir.join("topology"))
            .map_err(|e| format!("cannot read the topology of lab '{name}': {e}"))?;
        Ok(Handle { name: name.into(), topology: Topology::parse(&text)?, dir })
    }

    pub(crate) fn namespace(&self, node: &str) -> Result<File> {
        let nodes = self.topology.nodes();
        if !nodes.iter().any(|n| n == node) {
            let known: Vec<&str> = nodes.iter().map(String::as_str).collect();
            return Err(crate::spec::unknown("node", node, &known));
        }
        net::open_namespace(&self.name, node)
    }

    /// Runs `f` on a thread inside a node. Sockets made there keep belonging to
    /// that node when they are used elsewhere, so one test process can hold
    /// sockets of every machine of the lab.
    pub fn inside<T: Send>(&self, node: &str, f: impl FnOnce() -> T + Send) -> Result<T> {
        let ns = self.namespace(node)?;
        net::inside(&ns, f).map_err(|e| format!("cannot enter '{node}': {e}"))
    }

    /// The lab's own view of the names and of the network, for a command there.
    pub(crate) fn environment(&self, node: &str) -> Vec<(String, String)> {
        let t = &self.topology;
        let mut vars = vec![("NATLAB".to_string(), self.name.clone()), ("NATLAB_NODE".into(), node.into())];
        if let Some(ip) = t.ip(node) {
            vars.push(("NATLAB_IP".into(), ip.to_string()));
        }
        for s in &t.servers {
            let key = format!("NATLAB_{}", s.name.to_uppercase().replace('-', "_"));
            for (i, a) in s.addrs.iter().enumerate() {
                let n = if i == 0 { String::new() } else { (i + 1).to_string() };
                let value = if s.stun { format!("{a}:{}", STUN_PORTS[0]) } else { a.to_string() };
                vars.push((format!("{key}{n}"), value));
            }
        }
        vars
    }

    /// A command that will run inside a node, with the lab's `/etc/hosts`.
    pub fn command(&self, node: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let mut command = Command::new(program);
        self.place(node, &mut command)?;
        Ok(command)
    }

    /// Lets a command run inside a node. It may be spawned any number of times.
    pub fn place(&self, node: &str, command: &mut Command) -> Result<()> {
        let ns = self.namespace(node)?;
        command.envs(self.environment(node));
        let (hosts, resolv) = (self.dir.join("hosts"), self.dir.join("resolv.conf"));
        sys::run_inside(command, ns, hosts.as_os_str(), resolv.as_os_str()).map_err(|e| e.to_string())
    }

    /// Sends a command to the data plane: `status`, `nat HOME`,
    /// `set NAME key=value…`, `reset HOME`, `renumber HOME [IP]`.
    pub fn control(&self, command: &str) -> Result<String> {
        let path = self.dir.join("control");
        let fail = |e: io::Error| format!("lab '{}' does not answer: {e}", self.name);
        let mut stream = UnixStream::connect(&path).map_err(fail)?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(fail)?;
        writeln!(stream, "{command}").map_err(fail)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(fail)?;
        match answer.strip_prefix("ok\n") {
            Some(body) => Ok(body.to_string()),
            None => Err(answer.trim_start_matches("error: ").trim().to_string()),
        }
    }

    /// Two addresses with two ports each.
    pub fn stun_servers(&self) -> [[SocketAddr; 2]; 2] {
        let stun = self.topology.servers.iter().find(|s| s.stun);
        let ip = |i: usize| IpAddr::V4(stun.and_then(|s| s.addrs.get(i)).copied().unwrap_or(Ipv4Addr::UNSPECIFIED));
        [0, 1].map(|i| STUN_PORTS.map(|p| SocketAddr::new(ip(i), p)))
    }

    /// The topology it was started with.
    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.dir.join("topology")).unwrap_or_default()
    }
}

/// A lab that this process holds: it goes away when the value is dropped.
pub struct Lab {
    handle: Handle,
    stop: Option<UnixStream>,
    threads: Vec<JoinHandle<()>>,
    children: Vec<Child>,
}

impl Deref for Lab {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop = None;
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
        if let Err(e) = clean(&self.handle.name) {
            eprintln!("natlab: {e}");
        }
    }
}

impl Lab {
    /// A lab with a name of its own, for a test.
    pub fn up(text: &str) -> Result<Lab> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::start(&format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)), text)
    }

    /// Makes a lab from a topology text and starts it in this process. Labs
    /// that crashed processes have left behind are removed on the way.
    pub fn start(name: &str, text: &str) -> Result<Lab> {
        check_lab_name(name)?;
        net::check_machine()?;
        let lock = Lock::take()?;
        for left in remove_left_behind(&lock)? {
            eprintln!("natlab: removed lab '{left}', whose process is gone");
        }
        Self::start_locked(name, text)
    }

    /// As `start`, for a caller that holds the lock or whose parent does.
    pub(crate) fn start_locked(name: &str, text: &str) -> Result<Lab> {
        check_lab_name(name)?;
        net::check_machine()?;
        let topology = Topology::parse(text)?;
        let dir = state_root().join(name);
        if let Some(pid) = owner(&dir) {
            return Err(format!("lab '{name}' is held by process {pid}"));
        }
        clean(name)?;
        fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let own = std::process::id() as i32;
        let started = net::start_time(own).unwrap_or(0);
        let write =
            |file: &str, body: &str| fs::write(dir.join(file), body).map_err(|e| format!("cannot write {file}: {e}"));
        write("topology", text)?;
        write("hosts", &topology.hosts_file())?;
        write("resolv.conf", "# the lab has no name server: names come from /etc/hosts\n")?;
        write("owner", &format!("{own} {started}\n"))?;
        let mut lab = Lab {
            handle: Handle { name: name.into(), topology, dir },
            stop: None,
            threads: Vec::new(),
            children: Vec::new(),
        };
        // A failure from here on drops the lab, which cleans up.
        lab.build()?;
        Ok(lab)
    }

    fn build(&mut self) -> Result<()> {
        let (stop, watch) = UnixStream::pair().map_err(|e| format!("cannot make a socket: {e}"))?;
        self.stop = Some(stop);
        let nodes = self.plan();
        let names = self.topology.nodes();
        let adds: String = names.iter().map(|n| format!("netns add {}\n", net::namespace(&self.name, n))).collect();
        net::ip_batch(&(adds + &self.cables()))?;
        let mut devices = HashMap::new();
        for name in &names {
            let node = &nodes[name];
            let made = self.inside(name, || plan::set_up(node))?;
            for (device, fd) in made.map_err(|e| format!("{name}: {e}"))? {
                devices.insert((name.clone(), device), fd);
            }
        }
        let (mut core, nats) = self.data_plane(&mut devices)?;
        let control = UnixListener::bind(self.handle.dir.join("control"))
            .map_err(|e| format!("cannot make the control socket: {e}"))?;
        let stop = watch.try_clone().map_err(|e| e.to_string())?;
        self.spawn("natlab-core", move || core.run(&control, &stop))?;
        self.services(&watch, &nats)
    }

    fn spawn(&mut self, name: &str, f: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(f)
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        self.threads.push(thread);
        Ok(())
    }
}
