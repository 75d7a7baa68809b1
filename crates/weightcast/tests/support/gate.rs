//! A data port behind a gate: what passes is counted, and can be held or cut off.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes that pass at once.
const STEP: usize = 16 << 10;

/// How long each step takes at a gate that is slow.
const SLOW: Duration = Duration::from_millis(100);

/// Forwards connections to a data port, and meters what the port sends.
pub(crate) struct Gate {
    port: u16,
    meter: Arc<Meter>,
}

#[derive(Default)]
struct Meter {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    passed: u64,
    asked: u64,
    /// Bytes that may still pass; none: all.
    left: Option<u64>,
    held: bool,
    slow: bool,
    cut: bool,
    sockets: Vec<TcpStream>,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let meter = Arc::<Meter>::default();
        let forward = Arc::clone(&meter);
        thread::spawn(move || {
            for reader in listener.incoming() {
                // Who is not let in sees a connection that is closed at once.
                if let Ok(source) = TcpStream::connect(("127.0.0.2", port)) {
                    forward.join(reader.unwrap(), source);
                }
            }
        });
        Self { port, meter }
    }

    /// What the data port behind it binds: the same port of another loopback address.
    pub(crate) fn bind(&self) -> String {
        format!("127.0.0.2:{}", self.port)
    }

    /// What readers are told.
    pub(crate) fn advertise(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Bytes that the port has sent.
    pub(crate) fn passed(&self) -> u64 {
        self.meter.state.lock().unwrap().passed
    }

    /// Bytes that its readers have sent.
    #[allow(dead_code, reason = "only some look at them")]
    pub(crate) fn asked(&self) -> u64 {
        self.meter.state.lock().unwrap().asked
    }

    /// Lets so many bytes more pass, then none.
    pub(crate) fn hold_after(&self, bytes: u64) {
        self.meter.state.lock().unwrap().left = Some(bytes);
    }

    /// Lets everything pass, but a hundredth as fast as it could.
    pub(crate) fn slow_down(&self) {
        self.meter.state.lock().unwrap().slow = true;
    }

    /// Waits until somebody waits for bytes that may not pass.
    pub(crate) fn wait_held(&self) {
        let state = self.meter.state.lock().unwrap();
        drop(self.meter.changed.wait_while(state, |state| !state.held).unwrap());
    }

    /// Lets everything pass.
    pub(crate) fn open(&self) {
        let mut state = self.meter.state.lock().unwrap();
        (state.left, state.held) = (None, false);
        self.meter.changed.notify_all();
    }

    /// Ends all connections, and every later one.
    pub(crate) fn cut(&self) {
        let mut state = self.meter.state.lock().unwrap();
        state.cut = true;
        state.sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
        self.meter.changed.notify_all();
    }
}

impl Meter {
    fn join(self: &Arc<Self>, reader: TcpStream, source: TcpStream) {
        let mut state = self.state.lock().unwrap();
        if state.cut {
            return;
        }
        for socket in [&reader, &source] {
            socket.set_nodelay(true).unwrap();
            state.sockets.push(socket.try_clone().unwrap());
        }
        let (back, forth) = (reader.try_clone().unwrap(), source.try_clone().unwrap());
        let (asked, meter) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || pump(reader, source, |bytes| asked.ask(bytes)));
        thread::spawn(move || pump(forth, back, |bytes| meter.pass(bytes)));
    }

    /// What is asked always passes.
    fn ask(&self, bytes: u64) -> bool {
        self.state.lock().unwrap().asked += bytes;
        true
    }

    /// Waits until so many bytes may pass. False if none ever will.
    fn pass(&self, bytes: u64) -> bool {
        let mut state = self.state.lock().unwrap();
        while state.left.is_some_and(|left| left < bytes) && !state.cut {
            state.held = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
        state.passed += bytes;
        state.left = state.left.map(|left| left - bytes.min(left));
        let (slow, cut) = (state.slow, state.cut);
        drop(state);
        if slow {
            thread::sleep(SLOW);
        }
        !cut
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(u64) -> bool) {
    let mut bytes = vec![0; STEP];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !may_pass(count as u64) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Either end may be gone already.
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}
