//! Sources that are not who they say they are: a reader on the same host must copy from nobody's
//! memory but from that of the process that lends it.

use crate::by_hand::{
    connect_locally, frame, local_address, local_tail, loopback, prove, shake_as_reader,
    shake_as_source, take_frame, welcome,
};
use crate::ways::{noise, soon};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use weightcast_transport::Way::{Auto, Direct, Tcp};
use weightcast_transport::*;

const ROLE: &str = "WEIGHTCAST_TEST_VICTIM";
/// What another process does to be taken for the victim, and the victim's place.
const ATTACK: &str = "WEIGHTCAST_TEST_ATTACK";
const LEN: usize = 65_536;

fn secret() -> Vec<u8> {
    noise(LEN, 77)
}

fn lies() -> Vec<u8> {
    noise(LEN, 78)
}

/// Not a test of its own: a process that serves three bytes, and keeps a secret beside them.
#[test]
fn victim_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let secret = Region::from_bytes(&secret()).unwrap();
    println!("\nserving {} {} {}", server.addr(), export.0, secret.address());
    let _ended = std::io::stdin().read(&mut [0]);
}

/// A process of this program that plays a part, and what it said when it was ready.
struct Player {
    child: Child,
    said: Vec<String>,
}

impl Player {
    fn spawn(test: &str, role: (&str, &str)) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(role.0, role.1)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.starts_with("serving "));
        let line = line.expect("it says where it serves");
        Self { child, said: line.split(' ').skip(1).map(str::to_owned).collect() }
    }

    fn addr(&self) -> SocketAddr {
        self.said[0].parse().unwrap()
    }

    fn number(&self, at: usize) -> u64 {
        self.said[at].parse().unwrap()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _already_dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// What there is to know of a process that serves an export, and of a secret in its memory.
struct Victim {
    addr: SocketAddr,
    export: ExportId,
    secret: u64,
    /// Its Unix socket.
    name: Vec<u8>,
    pid: u32,
    /// Where the export's fence word lies.
    word: u64,
}

impl Victim {
    fn overhear(addr: SocketAddr, export: u64, secret: u64, pid: u32) -> Self {
        let mut socket = shake_as_reader(addr);
        socket.write_all(&frame(1, &[])).unwrap();
        let (_, name) = take_frame(&mut socket);
        let describe = frame(2, &[export, 1].map(u64::to_le_bytes).concat());
        socket.write_all(&describe).unwrap();
        let size = [&[0][..], &[1, 3].map(u64::to_le_bytes).concat(), &[1]].concat();
        assert_eq!(take_frame(&mut socket).1, size, "no addresses over TCP");
        let mut socket = prove(connect_locally(&name), &local_tail(pid, addr.port())).unwrap();
        socket.write_all(&describe).unwrap();
        let described = take_frame(&mut socket).1;
        assert_eq!(described[..size.len()], size);
        let place = described[size.len()..].chunks(8);
        let place: Vec<u64> = place.map(|n| u64::from_le_bytes(n.try_into().unwrap())).collect();
        assert_eq!(place[..2], [2, 16], "of the direct lane: the word, and one region");
        assert!(place[2] != 0 && place[3] != 0, "but to its own user");
        Self { addr, export: ExportId(export), secret, name, pid, word: place[2] }
    }

    fn spawn() -> (Player, Self) {
        let player = Player::spawn("impostor::victim_process", (ROLE, "1"));
        let [export, secret] = [1, 2].map(|at| player.number(at));
        let victim = Self::overhear(player.addr(), export, secret, player.child.id());
        (player, victim)
    }

    /// What another says of where the export lies: at the secret.
    fn lie(&self) -> Vec<u8> {
        let size = [&[0][..], &[1, LEN as u64].map(u64::to_le_bytes).concat(), &[1]].concat();
        let place = [2, 16, self.word, self.secret].map(u64::to_le_bytes).concat();
        frame(130, &[size, place].concat())
    }
}

/// Answers requests over TCP: names somebody's Unix socket, tells lies about places, sends lies.
fn answer_over_tcp(listener: TcpListener, name: Vec<u8>, place: Vec<u8>) {
    thread::spawn(move || {
        loop {
            let mut socket = shake_as_source(&listener);
            let (name, place) = (name.clone(), place.clone());
            thread::spawn(move || {
                loop {
                    let mut header = [0; 16];
                    let Ok(()) = socket.read_exact(&mut header) else { return };
                    socket.read_exact(&mut vec![0; header[8] as usize]).unwrap();
                    let answer = match header[4] {
                        1 => frame(129, &name),
                        2 => place.clone(),
                        _ => [frame(131, &lies()), frame(133, &[])].concat(),
                    };
                    socket.write_all(&answer).unwrap();
                }
            });
        }
    });
}

/// A source in this process that names somebody else's Unix socket.
fn impostor(victim: &Victim) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    answer_over_tcp(listener, victim.name.clone(), victim.lie());
    addr
}

/// Not a test of its own: a process with a Unix socket of its own, that says where the victim's
/// secret lies (`itself`), lets the victim answer (`middleman`) or a child of its own (`child`).
#[test]
fn attacker_process() {
    let Ok(attack) = std::env::var(ATTACK) else { return };
    let words: Vec<&str> = attack.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let victim =
        Victim::overhear(words[1].parse().unwrap(), number(2), number(3), number(4) as u32);
    let tcp = TcpListener::bind(loopback()).unwrap();
    let addr = tcp.local_addr().unwrap();
    let pid = std::process::id();
    let name = blake3::hash(&pid.to_le_bytes()).as_bytes()[..16].to_vec();
    let local = UnixListener::bind_addr(&local_address(&name)).unwrap();
    let (tail, place) = (local_tail(pid, addr.port()), victim.lie());
    match words[0] {
        "itself" => drop(thread::spawn(move || answer_locally(&local, &tail, &place))),
        "middleman" => {
            let theirs = victim.name.clone();
            drop(thread::spawn(move || pass_on(&local, &theirs)));
        }
        "child" => answer_in_child(&local, &tail, &place),
        other => panic!("{other}?"),
    }
    answer_over_tcp(tcp, name, victim.lie());
    println!("\nserving {addr}");
    let _ended = std::io::stdin().read(&mut [0]);
}

fn answer_locally(listener: &UnixListener, tail: &[u8], place: &[u8]) {
    for socket in listener.incoming() {
        let Ok(mut socket) = welcome(socket.unwrap(), tail) else { continue };
        let mut header = [0; 16];
        while socket.read_exact(&mut header).is_ok() {
            socket.read_exact(&mut vec![0; header[8] as usize]).unwrap();
            socket.write_all(place).unwrap();
        }
    }
}

/// The victim's own answers, through this process.
fn pass_on(listener: &UnixListener, victim: &[u8]) {
    for reader in listener.incoming() {
        let (reader, victim) = (reader.unwrap(), connect_locally(victim));
        let copy = |mut from: UnixStream, mut to: UnixStream| {
            thread::spawn(move || {
                let _ended = std::io::copy(&mut from, &mut to);
                let _ended = to.shutdown(std::net::Shutdown::Both);
            })
        };
        copy(reader.try_clone().unwrap(), victim.try_clone().unwrap());
        copy(victim, reader);
    }
}

/// A forked child answers on the listener of its parent, whose pid the kernel shows for it.
fn answer_in_child(listener: &UnixListener, tail: &[u8], place: &[u8]) {
    // SAFETY: this process has no other threads that hold locks: it plays a part and nothing else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // SAFETY: it has no precondition.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        answer_locally(listener, tail, place);
    }
}

type Outcome = (Peer, Result<Vec<Digest>, ReadError>, Vec<u8>);

/// What a reader gets from a source.
fn read_from(addr: SocketAddr, export: ExportId, bytes: usize) -> Outcome {
    let peer = Peer::connect(addr, &Auth::default(), soon()).unwrap();
    let to = [Region::allocate(bytes).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, bytes as u64)];
    let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
    let options = TransferOptions { deadline: Some(soon()), ..TransferOptions::default() };
    let outcome = read(&jobs, &to, &options);
    (peer, outcome, to[0].to_vec())
}

/// Nothing of the secret came.
fn no_leak(bytes: &[u8]) {
    let secret = secret();
    let leaked = bytes.iter().zip(&secret).filter(|(a, b)| a == b && **b != 0).count();
    assert!(leaked < LEN / 100, "{leaked} of {LEN} bytes of the secret were copied");
}

/// What came is what the source itself sent, and the peer says why.
fn over_tcp((peer, outcome, bytes): Outcome, why: &str) {
    no_leak(&bytes);
    outcome.unwrap();
    assert!(bytes == lies(), "from the impostor itself");
    assert_eq!(peer.way(), Tcp);
    let said = peer.why(ExportId(1), 1);
    assert!(said.contains(why), "{said}");
}

#[test]
fn the_process_that_lends_its_memory_is_read_directly() {
    let (_player, victim) = Victim::spawn();
    let (peer, outcome, bytes) = read_from(victim.addr, victim.export, 3);
    outcome.unwrap();
    assert_eq!((peer.way_to(victim.export, 1), &bytes[..]), (Direct, &b"abc"[..]));
    assert!(peer.why(victim.export, 1).contains("this host"));
}

#[test]
fn an_impostor_does_not_make_a_reader_copy_a_victims_memory() {
    let (_player, victim) = Victim::spawn();
    let addr = impostor(&victim);
    over_tcp(read_from(addr, victim.export, LEN), "not its own: of another process, port");
}

#[test]
fn an_impostor_does_not_make_a_reader_copy_its_own_memory() {
    let own = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = own.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let secret = Region::from_bytes(&secret()).unwrap();
    let pid = std::process::id();
    let victim = Victim::overhear(own.addr(), export.0, secret.address(), pid);
    let addr = impostor(&victim);
    over_tcp(read_from(addr, export, LEN), "this very process");
    let demanded = Peer::connect_by(Direct, addr, &Auth::default(), soon()).unwrap_err();
    assert!(matches!(demanded, TransportError::NoDirect { .. }), "{demanded}");
}

fn attacked(attack: &str) -> (Player, Player, Outcome) {
    let (player, victim) = Victim::spawn();
    let Victim { addr, export, secret, pid, .. } = victim;
    let attack = format!("{attack} {addr} {} {secret} {pid}", export.0);
    let attacker = Player::spawn("impostor::attacker_process", (ATTACK, &attack));
    let outcome = read_from(attacker.addr(), export, LEN);
    (player, attacker, outcome)
}

#[test]
fn addresses_are_used_against_the_process_that_gave_them_only() {
    let (_player, _attacker, (peer, outcome, bytes)) = attacked("itself");
    no_leak(&bytes);
    assert_eq!(peer.way(), Direct, "a process may lend its own memory");
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind, TransportError::Fenced { .. }), "none of it is there: {error}");
}

#[test]
fn what_another_process_answers_is_not_passed_on() {
    let (_player, _attacker, outcome) = attacked("middleman");
    over_tcp(outcome, "not its own: of another process, port");
}

#[test]
fn a_child_that_answers_for_its_parent_is_not_believed() {
    let (_player, _attacker, outcome) = attacked("child");
    over_tcp(outcome, "another process has answered");
}

#[test]
fn a_name_that_nobody_listens_at_is_another_hosts() {
    let (player, mut victim) = Victim::spawn();
    victim.name = vec![0; 16];
    over_tcp(read_from(impostor(&victim), victim.export, LEN), "another host");
    victim.name = Vec::new();
    over_tcp(read_from(impostor(&victim), victim.export, LEN), "no Unix socket");
    victim.name = vec![1; 15];
    let broken = Peer::connect_by(Auto, impostor(&victim), &Auth::default(), soon()).unwrap_err();
    assert!(matches!(broken, TransportError::Protocol { .. }), "{broken}");
    drop(player);
}
