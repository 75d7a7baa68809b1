//! Shows the checker of T1 which sessions act on a lease, and when the messages leave that renew the lease.

use weightcast_protocol::ConnectionId;
use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::session::SessionState;

use crate::checkers::{Act, Fact};
use crate::parts::queue::Life;
use crate::world::World;

impl World {
    /// A message leaves its process.
    pub(crate) fn see_sending(
        &mut self,
        life: Life,
        stream: ConnectionId,
        message: &ClientMessage,
    ) {
        let local = self.processes[life.process].clock.local(self.now);
        self.observe(Fact::Sent { life: (life.process, life.life), stream, local, message });
        // These need no lease: they ask for one, renew it, or give it up.
        let free = matches!(
            message,
            ClientMessage::Open(_)
                | ClientMessage::Heartbeat { .. }
                | ClientMessage::Progress { .. }
                | ClientMessage::Close { .. }
        );
        if !free {
            self.acts(life, Act::Reports);
        }
    }

    pub(crate) fn acts(&mut self, life: Life, act: Act) {
        let local = self.processes[life.process].clock.local(self.now);
        self.observe(Fact::Acts { life: (life.process, life.life), local, act });
    }

    /// Shows what a process serves now. In the instant in which a suspended process wakes, its port may answer before
    /// its session has looked at the clock; the other fences (S3, S5) stand against that.
    pub(crate) fn see_serving(&mut self, index: usize) {
        let process = &self.processes[index];
        let awake = process.paused_until < self.now;
        let (Some(session), Some(exposed)) = (&process.session, process.host.exposed) else {
            return;
        };
        if awake {
            let life = Life { process: index, life: process.life };
            let act = match session.state() {
                SessionState::Suspended => Act::Offers(exposed.generation),
                _ => Act::Serves(exposed.generation),
            };
            self.acts(life, act);
        }
    }
}
