//! Who is at the other end of a Unix socket: the kernel's word, never the peer's.

use crate::base::limits::MAX_LENT_FILES;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
const ROOM: usize = space_of(size_of::<libc::ucred>());

/// Room for the credentials, and for the files of an export with the page of its fence word.
const FILES_ROOM: usize = ROOM + space_of((MAX_LENT_FILES + 1) * size_of::<RawFd>());

const fn space_of(bytes: usize) -> usize {
    // SAFETY: the macro only computes.
    unsafe { libc::CMSG_SPACE(bytes as u32) as usize }
}

/// Control data, aligned as its headers are.
#[repr(C, align(8))]
struct ControlRoom<const N: usize>([u8; N]);

/// Receives bytes of one sender, and the sender's credentials. The socket must pass credentials (`SO_PASSCRED`);
/// the kernel never joins bytes of different senders.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<Credentials>)> {
    let (count, sender, _no_room) = receive_with(socket, bytes, &mut ControlRoom([0; ROOM]))?;
    Ok((count, sender))
}

/// The same, with the files that came along. Fewer than were sent come where this process may open no more.
pub(crate) fn receive_files(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<Credentials>, Vec<OwnedFd>)> {
    receive_with(socket, bytes, &mut ControlRoom([0; FILES_ROOM]))
}

fn receive_with<const N: usize>(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    room: &mut ControlRoom<N>,
) -> io::Result<(usize, Option<Credentials>, Vec<OwnedFd>)> {
    let mut range = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a msghdr of zeros is valid: no name, no ranges, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut range;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = N as _;
    // SAFETY: the message names a range and a room that are ours through the call.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the message in; the room still lives, and is taken from once.
    let (sender, files) = unsafe { control(&message) };
    Ok((count, sender, files))
}

/// # Safety
/// The message is one that `recvmsg` has filled in, its control data lives, and nobody else takes its descriptors.
unsafe fn control(message: &libc::msghdr) -> (Option<Credentials>, Vec<OwnedFd>) {
    let (mut sender, mut files) = (None, Vec::new());
    // SAFETY: the caller's promise; the result is null or points into the control data, here and below.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so a whole header lies there, and as many bytes as it says, which may lie unaligned.
        unsafe {
            let (kind, bytes) = ((*header).cmsg_type, payload(header));
            match kind {
                libc::SCM_CREDENTIALS if (*header).cmsg_level == libc::SOL_SOCKET => {
                    let whole = bytes >= size_of::<libc::ucred>();
                    let who = || libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned();
                    sender = whole.then(who).map(|who| Credentials { pid: who.pid, uid: who.uid });
                }
                libc::SCM_RIGHTS if (*header).cmsg_level == libc::SOL_SOCKET => {
                    let first = libc::CMSG_DATA(header).cast::<RawFd>();
                    let own = |at| OwnedFd::from_raw_fd(first.add(at).read_unaligned());
                    files.extend((0..bytes / size_of::<RawFd>()).map(own));
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    (sender, files)
}

/// Bytes behind a header.
///
/// # Safety
/// A header lies there.
unsafe fn payload(header: *const libc::cmsghdr) -> usize {
    // SAFETY: the caller's promise; the macro only computes.
    unsafe { (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) }
}

/// Sends bytes, the first of them with files. Fewer may go than were given; the files go with any.
pub(crate) fn send_files(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); FILES_ROOM];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
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
        send_files(socket.as_fd(), bytes, &[passed.as_fd()]).unwrap();
    }

    #[test]
    fn files_come_with_the_bytes_and_the_name_of_their_sender() {
        let (there, here) = UnixStream::pair().unwrap();
        let me =
            Credentials { pid: std::process::id() as i32, uid: rustix::process::getuid().as_raw() };
        for passes in [false, true] {
            rustix::net::sockopt::set_socket_passcred(&here, passes).unwrap();
            for count in [0, 1, 2, MAX_LENT_FILES + 1] {
                let pairs: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap()).collect();
                let (own, passed): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
                let fds: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
                assert_eq!(send_files(there.as_fd(), b"abc", &fds).unwrap(), 3);
                drop(passed);
                let mut bytes = [0; 8];
                let (read, sender, came) = receive_files(here.as_fd(), &mut bytes).unwrap();
                assert_eq!((read, sender, came.len()), (3, passes.then_some(me), count));
                assert!(!own.iter().any(|end| crate::wire::poll::is_hung_up(end.as_fd())));
                let flags = came.iter().map(|file| rustix::io::fcntl_getfd(file).unwrap());
                assert!(flags.into_iter().all(|flags| flags == rustix::io::FdFlags::CLOEXEC));
                for (number, end) in came.into_iter().enumerate() {
                    drop(end);
                    assert!(crate::wire::poll::is_hung_up(own[number].as_fd()), "in their order");
                }
            }
        }
        let many: Vec<_> = (0..MAX_LENT_FILES + 32).map(|_| here.as_fd()).collect();
        assert!(send_files(there.as_fd(), b"abc", &many).is_err());
    }

    /// What a peer sends along in place of credentials, where it may, is no word of the kernel.
    #[test]
    fn only_credentials_are_credentials() {
        let (there, here) = UnixStream::pair().unwrap();
        let mut bytes = [0; 8];
        // As many descriptors as take the room of credentials.
        for count in 1..=4 {
            let far: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap().0).collect();
            let fds: Vec<_> = far.iter().map(AsFd::as_fd).collect();
            send_files(there.as_fd(), b"abc", &fds).unwrap();
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
