//! Asks the server again and again, on a thread of its own, so that keys work while an answer is awaited.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use weightcast::{Options, Status};

/// The answer of the server, or why there is none.
pub(super) type StatusAnswer = Result<Status, String>;

/// Starts the thread, which ends when the receiver of the answers is dropped.
pub(super) fn start(
    options: Options,
    interval: Duration,
) -> std::io::Result<Receiver<StatusAnswer>> {
    // The channel has room for one answer, so no more are asked for than are taken.
    let (sender, answers) = sync_channel(1);
    std::thread::Builder::new().name("weightcast-top".to_owned()).spawn(move || {
        while sender.send(weightcast::status(&options).map_err(|e| e.to_string())).is_ok() {
            std::thread::sleep(interval);
        }
    })?;
    Ok(answers)
}
