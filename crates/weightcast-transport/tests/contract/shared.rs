//! Shared memory: who is lent it, what a reader takes from a source, and what it falls back to.

use crate::by_hand::{
    connect_locally, frame, local_address, local_tail, loopback, prove, shake_as_reader,
    shake_as_source, take_frame, welcome,
};
use crate::ways::{noise, soon};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use weightcast_transport::Way::{Shared, Tcp};
use weightcast_transport::*;

const LEN: usize = 10_000;

fn shared(bytes: &[u8]) -> Region {
    let region = Region::allocate_shared(bytes.len()).unwrap();
    region.write_at(0, bytes).unwrap();
    region
}

fn copies(len: usize) -> Vec<StridedCopy> {
    vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)]
}

fn read_by(peer: &Peer, export: ExportId, generation: u64, len: usize) -> (Vec<Digest>, Vec<u8>) {
    let to = [Region::allocate(len).unwrap()];
    let jobs = [SourceJob { peer, export, generation, copies: copies(len) }];
    let options = TransferOptions { deadline: Some(soon()), ..TransferOptions::default() };
    (read(&jobs, &to, &options).unwrap(), to[0].to_vec())
}

/// A trainer's life: the same memory under one export after the other, each fenced before the next is written.
#[test]
fn generations_of_the_same_memory_are_read_one_after_the_other() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let peer = Peer::connect_by(Shared, server.addr(), &Auth::default(), soon()).unwrap();
    // Of a size that no other test has.
    const LEN: usize = 37 * 4_096;
    let memory = [shared(&[0; LEN]), shared(&[0; 5])];
    for generation in 1..=70 {
        let bytes = noise(LEN, generation);
        memory[0].write_at(0, &bytes).unwrap();
        let export = server.exports().expose(generation, memory.to_vec());
        let (digests, came) = read_by(&peer, export, generation, LEN);
        assert!(came == bytes && digests == [digest_at(0, &bytes)], "generation {generation}");
        assert_eq!(peer.way_to(export, generation), Shared);
        assert_eq!(mappings(LEN), 1, "mapped once, and for reading alone");
        server.exports().fence(export);
    }
}

/// Mappings for reading of shared memory of this size. Its owner, in this process too, has one for writing.
fn mappings(len: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_len = |line: &&str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16));
        (to.ok()? - from.ok()? == len).then_some(())
    };
    let ours = maps.lines().filter(|line| line.contains("memfd:weightcast"));
    ours.filter(|line| line.contains(" r--s ") && of_len(line).is_some()).count()
}

/// Over TCP nobody has proved which process of which user asks.
#[test]
fn nothing_is_lent_over_tcp() {
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![shared(&[1; LEN])]);
    let lend = frame(10, &[export.0, 1].map(u64::to_le_bytes).concat());
    let mut far = shake_as_reader(server.addr());
    far.write_all(&frame(1, &[])).unwrap();
    let name = take_frame(&mut far).1;
    far.write_all(&lend).unwrap();
    assert_eq!(take_frame(&mut far), (139, Vec::new()));
    let tail = local_tail(std::process::id(), server.addr().port());
    let mut near = prove(connect_locally(&name), &tail).unwrap();
    near.write_all(&lend).unwrap();
    assert_eq!(take_frame(&mut near), (139, (1_u64 << 48).to_le_bytes().to_vec()));
    server.exports().fence(export);
    near.write_all(&lend).unwrap();
    assert_eq!(take_frame(&mut near).0, 134, "what is fenced is not lent");
    let private = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    near.write_all(&frame(10, &[private.0, 1].map(u64::to_le_bytes).concat())).unwrap();
    assert_eq!(take_frame(&mut near), (139, Vec::new()));
}

/// What a source that is none of this library says and hands over.
struct Lender {
    /// Of the only region, in 16 bits its file, and where it lies there.
    place: u64,
    files: Vec<OwnedFd>,
    /// Whether a child of this process hands them over.
    by_child: bool,
}

fn file(len: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("lent", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// The size of the region, and that it is lent.
fn description() -> Vec<u8> {
    let size = [&[0][..], &[1, LEN as u64].map(u64::to_le_bytes).concat(), &[1]].concat();
    let offer = [4, 24, 0, 0, 0].map(u64::to_le_bytes).concat();
    frame(130, &[size, offer].concat())
}

impl Lender {
    /// Serves in this process, which demanded ways may read.
    fn serve(self) -> SocketAddr {
        let tcp = TcpListener::bind(loopback()).unwrap();
        let addr = tcp.local_addr().unwrap();
        let name = blake3::hash(&addr.port().to_le_bytes()).as_bytes()[..16].to_vec();
        let local = UnixListener::bind_addr(&local_address(&name)).unwrap();
        let tail = local_tail(std::process::id(), addr.port());
        thread::spawn(move || {
            for socket in local.incoming() {
                let Ok(socket) = welcome(socket.unwrap(), &tail) else { continue };
                self.answer(socket);
            }
        });
        thread::spawn(move || {
            loop {
                let socket = shake_as_source(&tcp);
                let name = name.clone();
                thread::spawn(move || answer_over_tcp(socket, &name));
            }
        });
        addr
    }

    fn answer(&self, mut socket: UnixStream) {
        let mut header = [0; 16];
        while socket.read_exact(&mut header).is_ok() {
            socket.read_exact(&mut vec![0; header[8] as usize]).unwrap();
            if header[4] != 10 {
                socket.write_all(&description()).unwrap();
                continue;
            }
            let fds: Vec<_> = self.files.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); 256];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
            let lent = frame(139, &self.place.to_le_bytes());
            let mut send = || {
                let header = IoSlice::new(&lent[..16]);
                sendmsg(&socket, &[header], &mut control, SendFlags::empty()).unwrap()
            };
            if !self.by_child {
                send();
                (&socket).write_all(&lent[16..]).unwrap();
                continue;
            }
            // SAFETY: the child makes one system call and ends without running anything else of this process.
            let child = unsafe { libc::fork() };
            if child == 0 {
                send();
                // SAFETY: it has no precondition.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: our own child, not waited for before.
            assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
            // The reader has left, if it saw who spoke.
            if (&socket).write_all(&lent[16..]).is_err() {
                return;
            }
        }
    }
}

fn answer_over_tcp(mut socket: std::net::TcpStream, name: &[u8]) {
    let mut header = [0; 16];
    while socket.read_exact(&mut header).is_ok() {
        socket.read_exact(&mut vec![0; header[8] as usize]).unwrap();
        let answer = match header[4] {
            1 => frame(129, name),
            2 => description(),
            _ => [frame(131, &noise(LEN, 5)), frame(133, &[])].concat(),
        };
        socket.write_all(&answer).unwrap();
    }
}

/// A reader maps nothing that could be taken from under it, and no place that is not there; it reads on in
/// another way, and says why.
#[test]
fn a_lender_that_cannot_be_trusted_is_read_in_another_way() {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    let good = || file(2 * LEN as u64, seals);
    let word = || file(4_096, seals);
    let place = |number: u64, offset: usize| number << 48 | offset as u64;
    let table = [
        (place(1, 0), vec![word(), file(2 * LEN as u64, seals - SealFlags::SHRINK)], "not sealed"),
        (place(1, 0), vec![file(4_096, SealFlags::empty()), good()], "not sealed"),
        (place(1, 0), vec![file(0, seals), good()], "not mapped"),
        (place(1, 0), vec![file(4, seals), good()], "too short"),
        (place(1, LEN + 1), vec![word(), good()], "does not lie"),
        (place(2, 0), vec![word(), good()], "does not lie"),
        (place(0, 0), vec![word(), good()], "does not lie"),
        (place(1, 0), vec![word(), UnixStream::pair().unwrap().0.into()], "no seals"),
        (place(1, 0), vec![word()], "does not lie"),
        (place(1, 0), vec![], "no file came"),
    ];
    for (place, files, why) in table {
        let addr = Lender { place, files, by_child: false }.serve();
        let peer = Peer::connect_by(Shared, addr, &Auth::default(), soon()).unwrap();
        let (_, came) = read_by(&peer, ExportId(7), 1, LEN);
        assert!(came == noise(LEN, 5), "{why}: over TCP");
        assert_eq!(peer.way_to(ExportId(7), 1), Tcp, "{why}");
        let said = peer.why(ExportId(7), 1);
        assert!(said.contains(why), "{why}: {said}");
    }
    // The same of a lender that can: its word says that the export is served no more.
    let lender = |by_child| Lender { place: place(1, 0), files: vec![word(), good()], by_child };
    let addr = lender(false).serve();
    let peer = Peer::connect_by(Shared, addr, &Auth::default(), soon()).unwrap();
    let to = [Region::allocate(LEN).unwrap()];
    let jobs = [SourceJob { peer: &peer, export: ExportId(7), generation: 1, copies: copies(LEN) }];
    let error = read(&jobs, &to, &TransferOptions::default()).unwrap_err();
    assert_eq!(error.kind, TransportError::Fenced { export: ExportId(7) });
    // What a child of the process hands over is not the process's.
    let peer = Peer::connect_by(Shared, lender(true).serve(), &Auth::default(), soon()).unwrap();
    let jobs = [SourceJob { peer: &peer, export: ExportId(7), generation: 1, copies: copies(LEN) }];
    let error = read(&jobs, &to, &TransferOptions::default()).unwrap_err();
    assert!(error.to_string().contains("another process has answered"), "{error}");
}
