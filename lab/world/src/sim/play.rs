//! Plays a plan and checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use lobby::{End, State};
use seam::Dice;
use session::{Command, GameSide, HostConfig, JoinConfig, Local, Session};

use super::node::{FrameId, frame, shape};
use super::plan::{AGREED_AT, CALM_AT, END_AT, dice_of};
use super::strangers::Strangers;
use super::{Faults, Network, Node, Plan};

/// Time between two bursts of the strangers.
const TROUBLE_EVERY: Duration = Duration::from_millis(170);
/// Turns one node may take at one instant; more means that it spins.
const TURNS: u32 = 20_000;

/// What a world came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Players, the host included.
    pub players: usize,
    /// Datagrams' bytes on the wire.
    pub bytes: u64,
    /// Frames delivered to games.
    pub delivered: u64,
    /// Turns taken by all nodes.
    pub turns: u64,
}

/// What did not hold in a world.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays the world.
    pub seed: u64,
    /// What was expected and what was found.
    pub why: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.why.join("\n    "))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Join(usize),
    Leave(usize),
    Kill(usize),
    Rebind(usize),
    Stall,
    Start,
    Chat(usize),
    Stage(usize),
    Frame(usize),
    Calm,
    Agreed,
    LastFrame(usize),
    Trouble,
    Second,
}

struct World<'p> {
    plan: &'p Plan,
    begun: Instant,
    now: Instant,
    network: Network,
    nodes: Vec<Option<Node>>,
    by_address: BTreeMap<SocketAddr, usize>,
    due: BTreeSet<(Instant, usize)>,
    due_of: Vec<Option<Instant>>,
    acts: BTreeSet<(Instant, u64, Act)>,
    act_count: u64,
    numbers: Vec<u32>,
    /// Frames of the last part: who sent them while who was there.
    last: Vec<FrameId>,
    dice: Dice,
    report: Report,
    why: Vec<String>,
    strangers: Option<Strangers>,
    traced: bool,
}

/// Plays a world. `traced` prints every event of every node as it ends.
///
/// # Errors
/// Everything that did not hold.
pub fn run(plan: &Plan, traced: bool) -> Result<Report, Failure> {
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at some real instant")]
    let begun = Instant::now();
    let mut world = World::new(plan, begun, traced);
    world.play();
    world.check_frames();
    let World { report, why, .. } = world;
    if why.is_empty() { Ok(report) } else { Err(Failure { seed: plan.seed, why }) }
}

/// The host has number 0, joiner `i` of the plan has number `i + 1`.
fn address(index: usize, life: u8) -> SocketAddr {
    let [_, _, high, low] = (index as u32).to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(192, 168, high, low), 30_000 + u16::from(life)))
}

impl<'p> World<'p> {
    fn new(plan: &'p Plan, begun: Instant, traced: bool) -> Self {
        let mut dice = dice_of(plan.seed ^ 0xA11C_E5ED);
        let mut network = Network::new(plan.faults, dice.child());
        for (a, b) in &plan.cut {
            network.cut(address(a + 1, 0), address(b + 1, 0));
        }
        let count = plan.players.len() + 1;
        let mut world = Self {
            plan,
            begun,
            now: begun,
            network,
            nodes: (0..count).map(|_| None).collect(),
            by_address: BTreeMap::new(),
            due: BTreeSet::new(),
            due_of: vec![None; count],
            acts: BTreeSet::new(),
            act_count: 0,
            numbers: vec![0; count],
            last: Vec::new(),
            dice,
            report: Report { players: count, ..Report::default() },
            why: Vec::new(),
            strangers: plan.hostile.then(|| Strangers::new(dice_of(plan.seed ^ 0x0057_4A46))),
            traced,
        };
        world.schedule();
        world.host();
        world
    }

    fn at(&mut self, after: Duration, act: Act) {
        self.act_count += 1;
        self.acts.insert((self.begun + after, self.act_count, act));
    }

    fn schedule(&mut self) {
        for (i, player) in self.plan.players.iter().enumerate() {
            let index = i + 1;
            self.at(player.joins, Act::Join(index));
            for (when, act) in [
                (player.leaves, Act::Leave(index)),
                (player.dies, Act::Kill(index)),
                (player.rebinds, Act::Rebind(index)),
            ] {
                if let Some(when) = when {
                    self.at(when, act);
                }
            }
            let when = Duration::from_millis(2000 + self.dice.below(14_000));
            match self.dice.below(6) {
                0 => self.at(when, Act::Chat(index)),
                1 => self.at(when, Act::Stage(index)),
                _ => {}
            }
        }
        if let Some((when, _)) = self.plan.stall {
            self.at(when, Act::Stall);
        }
        if let Some(when) = self.plan.starts {
            self.at(when, Act::Start);
        }
        for index in usize::from(self.plan.relay)..=self.plan.players.len() {
            let mut when = Duration::from_millis(500 + self.dice.below(1000));
            while when < AGREED_AT - Duration::from_secs(2) {
                self.at(when, Act::Frame(index));
                when += self.plan.frame_every;
            }
            let when = AGREED_AT + Duration::from_millis(100 + self.dice.below(500));
            self.at(when, Act::LastFrame(index));
        }
        if self.strangers.is_some() {
            let mut when = Duration::from_secs(1);
            while when < CALM_AT {
                self.at(when, Act::Trouble);
                when += TROUBLE_EVERY;
            }
        }
        for second in 1..END_AT.as_secs() {
            self.at(Duration::from_secs(second), Act::Second);
        }
        self.at(CALM_AT, Act::Calm);
        self.at(AGREED_AT, Act::Agreed);
    }

    fn local(address: SocketAddr) -> Local {
        let lan = match address.ip() {
            std::net::IpAddr::V4(ip) => Some(ip),
            std::net::IpAddr::V6(_) => None,
        };
        Local { port: address.port(), lan, ..Local::default() }
    }

    fn host(&mut self) {
        let address = address(0, 0);
        let config = HostConfig {
            lobby_name: "world".to_owned(),
            relay_only: self.plan.relay,
            companies: self.dice.chance(0.5),
            game: if self.plan.relay { GameSide::None } else { GameSide::Inside },
            local: Self::local(address),
            extensions: !self.plan.old_host,
            ..HostConfig::new("host", self.dice.bytes())
        };
        let session = Session::host(config, self.dice.bytes(), self.now, 1_790_000_000);
        self.add(Node::new(0, address, session, self.begun));
    }

    fn join(&mut self, index: usize) {
        let Some(code) = self.nodes[0].as_ref().and_then(|host| host.code.clone()) else {
            return self.why.push("the host has no code although nobody has to be asked".to_owned());
        };
        let code = match joincode::parse(&code) {
            Ok(code) => code,
            Err(error) => return self.why.push(format!("the host's own code does not read: {error}")),
        };
        let player = &self.plan.players[index - 1];
        let address = address(index, 0);
        // Every fourth player is called the same, so that names have to be told apart.
        let name = if index.is_multiple_of(4) { "twin".to_owned() } else { format!("p{index}") };
        let config = JoinConfig {
            mesh: player.mesh,
            timeout: Duration::from_secs(40),
            game: GameSide::Inside,
            local: Self::local(address),
            extensions: !player.old,
            ..JoinConfig::new(&name, code)
        };
        let session = Session::join(config, self.dice.bytes(), self.now, 1_790_000_000);
        self.add(Node::new(index, address, session, self.begun));
    }

    fn add(&mut self, mut node: Node) {
        node.trace = self.traced.then(Vec::new);
        let index = node.index;
        self.by_address.insert(node.address, index);
        self.nodes[index] = Some(node);
        self.turn(index);
    }

    fn turn(&mut self, index: usize) {
        let Some(node) = &mut self.nodes[index] else { return };
        if node.stalled_until.is_some_and(|until| until > self.now) {
            return self.note_due(index);
        }
        node.stalled_until = None;
        node.turn(self.now, &mut self.network);
        self.report.turns += 1;
        self.note_due(index);
    }

    fn note_due(&mut self, index: usize) {
        let due = self.nodes[index].as_ref().and_then(Node::due);
        if let Some(old) = self.due_of[index].take() {
            self.due.remove(&(old, index));
        }
        if let Some(due) = due {
            self.due.insert((due, index));
            self.due_of[index] = Some(due);
        }
    }

    fn play(&mut self) {
        let end = self.begun + END_AT;
        let mut turns_here = 0;
        while self.why.is_empty() {
            let next =
                [self.due.first().map(|(at, _)| *at), self.network.next(), self.acts.first().map(|(at, _, _)| *at)];
            let Some(next) = next.into_iter().flatten().min() else { break };
            if next >= end {
                break;
            }
            if next > self.now {
                self.now = next;
                turns_here = 0;
            }
            turns_here += 1;
            if turns_here > TURNS {
                let spinning = self.due.first().map(|(_, index)| *index);
                let reason = spinning
                    .and_then(|index| self.nodes[index].as_ref()?.session.as_ref()?.poll_timeout())
                    .map(|(_, reason)| reason);
                return self.why.push(format!("node {spinning:?} spins on {reason:?}"));
            }
            self.step();
        }
        self.print_traces();
    }

    fn step(&mut self) {
        while let Some(act) = self.acts.first().filter(|(at, _, _)| *at <= self.now).map(|(_, _, act)| *act) {
            self.acts.pop_first();
            self.act(act);
        }
        let mut touched = BTreeSet::new();
        while let Some((from, to, bytes)) = self.network.arrived(self.now) {
            if let Some(strangers) = &mut self.strangers {
                strangers.overhear(from, to, &bytes);
            }
            let Some(index) = self.by_address.get(&to).copied() else { continue };
            let Some(node) = &mut self.nodes[index] else { continue };
            if node.stalled_until.is_some_and(|until| until > self.now) {
                // A process that stands still leaves its datagrams in the socket's buffer, which is not endless.
                continue;
            }
            node.receive(self.now, from, bytes);
            touched.insert(index);
        }
        while let Some((_, index)) = self.due.first().filter(|(at, _)| *at <= self.now).copied() {
            self.due.pop_first();
            self.due_of[index] = None;
            touched.insert(index);
        }
        for index in touched {
            self.turn(index);
        }
    }

    fn command(&mut self, index: usize, command: Command) {
        if let Some(session) = self.nodes[index].as_mut().and_then(|node| node.session.as_mut()) {
            session.command(self.now, command);
        }
        self.turn(index);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Join(index) => self.join(index),
            Act::Leave(index) => self.command(index, Command::Quit),
            Act::Kill(index) => {
                if let Some(node) = &mut self.nodes[index] {
                    node.session = None;
                    self.by_address.remove(&node.address);
                }
                self.note_due(index);
            }
            Act::Rebind(index) => {
                if let Some(node) = &mut self.nodes[index] {
                    self.by_address.remove(&node.address);
                    node.address = address(index, 1);
                    self.by_address.insert(node.address, index);
                    for (a, b) in self.plan.cut.iter().filter(|(a, b)| a + 1 == index || b + 1 == index) {
                        let other = if a + 1 == index { b + 1 } else { a + 1 };
                        self.network.cut(node.address, address(other, 0));
                        self.network.cut(node.address, address(other, 1));
                    }
                }
            }
            Act::Stall => {
                if let (Some(node), Some((_, long))) = (&mut self.nodes[0], self.plan.stall) {
                    node.stalled_until = Some(self.now + long);
                }
                self.note_due(0);
            }
            Act::Start => self.command(0, Command::Start { save: false, switch: false }),
            Act::Chat(index) => self.command(index, Command::Chat(format!("hello from {index}"))),
            Act::Stage(index) => self.command(index, Command::Stage(format!("stage {index}"))),
            Act::Frame(index) => {
                self.frame(index);
            }
            Act::Trouble => self.trouble(),
            Act::Second => self.check_memory(),
            Act::Calm => {
                let delay = self.plan.faults.delay;
                self.network.faults = Faults { delay, ..Faults::default() };
            }
            Act::Agreed => self.check_agreement(),
            Act::LastFrame(index) => {
                if let Some(id) = self.frame(index) {
                    self.last.push(id);
                }
            }
        }
    }

    fn trouble(&mut self) {
        let target = if self.dice.chance(0.6) { 0 } else { self.dice.below(self.nodes.len() as u64) as usize };
        let member = self.dice.below(self.nodes.len() as u64) as usize;
        let code = self.nodes[0].as_ref().and_then(|host| host.code.clone());
        let at = |index: usize| self.nodes[index].as_ref().map(|node| node.address);
        // Whoever is not in yet believes an unauthenticated reject (netpunch wire, section 4.3), which the host sends
        // when somebody else writes in its name.
        let is_in = |index: usize| self.nodes[index].as_ref().is_some_and(|node| node.state == State::Connected);
        let (Some(target), Some(member), Some(strangers)) =
            (at(target), at(member).filter(|_| is_in(member)), &mut self.strangers)
        else {
            return;
        };
        strangers.learn(code.as_deref().unwrap_or_default());
        for (from, to, bytes) in strangers.burst(target, member) {
            self.network.inject(self.now, from, to, bytes);
        }
    }

    /// Nothing in a session grows without a bound, whoever sends whatever.
    fn check_memory(&mut self) {
        for node in self.nodes.iter().flatten() {
            let Some(session) = &node.session else { continue };
            for (what, held, bound) in session.held() {
                if held > bound {
                    self.why.push(format!("node {} holds {held} {what}, more than {bound}", node.index));
                }
            }
        }
    }

    fn frame(&mut self, index: usize) -> Option<FrameId> {
        if !self.nodes[index].as_ref().is_some_and(Node::is_live) {
            return None;
        }
        self.numbers[index] += 1;
        let id = (index as u16, self.numbers[index]);
        self.command(index, Command::Frame(frame(id).into()));
        Some(id)
    }

    /// Ten seconds after the faults stopped, everybody who is still there sees what the host sees.
    fn check_agreement(&mut self) {
        let Some(host) = self.nodes[0].as_ref() else { return };
        let want = shape(&host.roster);
        let expected: BTreeSet<usize> = (1..self.nodes.len())
            .filter(|index| {
                let player = &self.plan.players[index - 1];
                player.leaves.is_none() && player.dies.is_none()
            })
            .collect();
        let mut names = BTreeSet::new();
        for index in &expected {
            let Some(node) = &self.nodes[*index] else { continue };
            if let Some(end) = &node.end {
                self.why.push(format!("player {index} ended: {end}"));
                continue;
            }
            if !names.insert(node.roster.you.clone()) {
                self.why.push(format!("player {index} is called {} like another", node.roster.you));
            }
            let found = shape(&node.roster);
            if found != want {
                let player = &self.plan.players[index - 1];
                let missing: Vec<_> = want.3.difference(&found.3).take(3).collect();
                let extra: Vec<_> = found.3.difference(&want.3).take(3).collect();
                self.why.push(format!(
                    "player {index} ({player:?}) sees another roster: {} {} {}; missing {missing:?}, extra {extra:?}",
                    found.0, found.1, found.2
                ));
            }
        }
        let there = expected.len() + usize::from(!self.plan.relay);
        if want.3.len() != there {
            let who: Vec<_> = want.3.iter().map(|player| player.0.clone()).collect();
            self.why.push(format!("the host's roster has {} players, {there} are there: {who:?}", want.3.len()));
        }
        let letters: BTreeSet<_> = want.3.iter().map(|player| player.1.clone()).collect();
        if letters.len() != want.3.len() {
            self.why.push("two players have one letter".to_owned());
        }
        for player in &want.3 {
            if player.1.is_empty() {
                self.why.push(format!("{} has no letter", player.0));
            }
        }
    }

    fn check_frames(&mut self) {
        if !self.why.is_empty() {
            return;
        }
        for node in self.nodes.iter().flatten() {
            self.why.extend(node.complaints.iter().map(|c| format!("node {}: {c}", node.index)));
            for (id, times) in &node.frames {
                self.report.delivered += u64::from(*times);
                if *times > 1 {
                    self.why.push(format!("frame {id:?} reached node {} {times} times", node.index));
                }
                if usize::from(id.0) == node.index {
                    self.why.push(format!("node {} got its own frame {id:?}", node.index));
                }
                if id.1 > self.numbers[usize::from(id.0)] {
                    self.why.push(format!("frame {id:?} was never sent"));
                }
            }
            for ((from, text), times) in &node.chat {
                // The text of a player that rejoined under its old name is still its own. A program's own notes to its
                // player tell of events, and an event may happen twice.
                if *times > 1 && from != "MULTIPLAYER" && node.end != Some(End::Quit) {
                    self.why.push(format!("node {} read '{text}' of {from} {times} times", node.index));
                }
            }
        }
        // Everybody is there, nothing is lost: each frame of the last part reaches everybody else.
        for id in self.last.clone() {
            let maker = usize::from(id.0);
            for node in self.nodes.iter().flatten().filter(|node| node.is_live() && node.index != maker) {
                if node.index == 0 && self.plan.relay {
                    continue;
                }
                if !node.frames.contains_key(&id) {
                    self.why.push(format!("frame {id:?} of the last part never reached node {}", node.index));
                }
            }
        }
        if let Some(strangers) = &mut self.strangers {
            self.network.outside.iter().for_each(|bytes| strangers.hear(bytes));
            self.why.extend(strangers.excess(END_AT.as_secs()));
        }
        self.report.bytes = self.network.bytes;
    }

    fn print_traces(&self) {
        if !self.traced {
            return;
        }
        for node in self.nodes.iter().flatten() {
            for line in node.trace.iter().flatten() {
                println!("{:>3} {line}", node.index);
            }
        }
    }
}
