//! Who is at the other end of a Unix socket: the kernel's word, never the peer's.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A process and its user, as this process's namespaces see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// 0 if it lives in a pid namespace that this process does not see.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

/// Who called `listen` (of a socket that was connected) or `connect` (of one that was accepted).
pub(crate) fn of_peer(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which are ours; a ucred is plain numbers.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut len,
        )
    };
    match done {
        0 => Ok(Credentials { pid: who.pid, uid: who.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Room for one set of credentials and nothing else: descriptors that a peer sends along do not
/// fit, so the kernel closes them.
#[repr(C, align(8))]
struct CredentialsRoom([u8; ROOM]);

// SAFETY: the macro only computes.
const ROOM: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

/// Receives bytes of one sender, and the sender's credentials. The socket must pass credentials (`SO_PASSCRED`);
/// the kernel never joins bytes of different senders.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<Credentials>)> {
    let mut range = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut room = CredentialsRoom([0; ROOM]);
    // SAFETY: a msghdr of zeros is valid: no name, no ranges, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut range;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the message names a range and a room that are ours through the call.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the message in; the room still lives.
    Ok((count, unsafe { sender(&message) }))
}

/// # Safety
/// The message is one that `recvmsg` has filled in, and its control data lives.
unsafe fn sender(message: &libc::msghdr) -> Option<Credentials> {
    // SAFETY: the caller's promise; the result is null or points into the control data.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return None;
    }
    let (level, kind, len) =
        // SAFETY: not null, so a whole header lies there.
        unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
    // SAFETY: the macro only computes.
    let whole = unsafe { libc::CMSG_LEN(size_of::<libc::ucred>() as u32) } as _;
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) || len < whole {
        return None;
    }
    let who: libc::ucred =
        // SAFETY: as many bytes as a ucred has follow the header; they may lie unaligned.
        unsafe { libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned() };
    Some(Credentials { pid: who.pid, uid: who.uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_says_who_sent_what_and_drops_descriptors_that_came_along() {
        let (mut there, here) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_passcred(&here, true).unwrap();
        let me =
            Credentials { pid: std::process::id() as i32, uid: rustix::process::getuid().as_raw() };
        assert_eq!(of_peer(here.as_fd()).unwrap(), me);
        there.write_all(b"abc").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(receive(here.as_fd(), &mut bytes).unwrap(), (3, Some(me)));
        assert_eq!(&bytes[..3], b"abc");

        let (near, far) = UnixStream::pair().unwrap();
        let (near, far) = (OwnedFd::from(near), OwnedFd::from(far));
        send_with(&there, b"def", far);
        assert_eq!(receive(here.as_fd(), &mut bytes).unwrap(), (3, Some(me)));
        assert!(crate::wire::poll::is_hung_up(near.as_fd()), "nobody holds the other end any more");
    }

    fn send_with(socket: &UnixStream, bytes: &[u8], passed: OwnedFd) {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let fds = [passed.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); 64];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let range = [io::IoSlice::new(bytes)];
        sendmsg(socket, &range, &mut control, SendFlags::empty()).unwrap();
    }

    /// What a peer sends along in place of credentials, where it may, is no word of the kernel.
    #[test]
    fn only_credentials_are_credentials() {
        let (there, here) = UnixStream::pair().unwrap();
        let mut bytes = [0; 8];
        // As many descriptors as take the room of credentials.
        for count in 1..=4 {
            let far: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap().0).collect();
            use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
            let fds: Vec<_> = far.iter().map(AsFd::as_fd).collect();
            let mut space = [std::mem::MaybeUninit::uninit(); 64];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let range = [io::IoSlice::new(b"abc")];
            sendmsg(&there, &range, &mut control, SendFlags::empty()).unwrap();
            assert_eq!(receive(here.as_fd(), &mut bytes).unwrap(), (3, None), "{count}");
        }
    }

    /// A user is told apart from its group. Only root can become another user, so others learn nothing
    /// here.
    #[test]
    fn another_user_is_another_user_at_every_door() {
        use crate::base::patience::Patience;
        use crate::port::listener::Listener;
        use crate::wire::local_name::LocalName;
        use crate::wire::local_source;
        use rustix::process::{Gid, Uid};
        use rustix::thread::{set_thread_gid, set_thread_uid};
        use std::os::unix::net::UnixListener;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (uid, gid) = (65_534, 65_533);
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let (theirs, own) = (
            LocalName::draw(),
            UnixListener::bind_addr(&LocalName::draw().address().unwrap()).unwrap(),
        );
        // The ids are those of this thread alone.
        let become_another = move || {
            set_thread_gid(Gid::from_raw(gid)).unwrap();
            set_thread_uid(Uid::from_raw(uid)).unwrap();
        };
        let (name, to) = (listener.name().unwrap(), own.local_addr().unwrap());
        let came = std::thread::spawn(move || {
            become_another();
            let near = crate::wire::local::connect(name, &Patience::default()).unwrap().unwrap();
            (
                near,
                UnixStream::connect_addr(&to).unwrap(),
                UnixListener::bind_addr(&theirs.address().unwrap()).unwrap(),
            )
        });
        let _came = came.join().unwrap();
        let accepted = own.accept().unwrap().0;
        let pid = std::process::id() as i32;
        assert_eq!(of_peer(accepted.as_fd()).unwrap(), Credentials { pid, uid });
        assert!(listener.accept().is_empty(), "it may not ask for addresses");
        let socket = crate::wire::local::connect(theirs, &Patience::default()).unwrap().unwrap();
        let no = local_source::listener(&socket, true).unwrap_err();
        assert_eq!(no, format!("it belongs to another user ({uid})"));
    }
}
