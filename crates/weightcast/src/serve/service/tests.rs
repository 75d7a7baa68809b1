//! What a client is told of what the actor answers.

use weightcast_protocol::{CallError, ContentDigest};

use super::super::queue::ClientOrigin;
use super::*;

fn served_by(inputs: mpsc::Sender<ActorInput>) -> Service {
    let (transfers, dials) = (Transfers::new(), DialBack::new());
    let recordings = RecordingFiles::default();
    Service { inputs, connections: Arc::default(), transfers, dials, recordings }
}

/// Stores a manifest, to which the actor gives this answer.
async fn stored(answer: Result<(), CallError>) -> Result<(), Status> {
    let (inputs, mut asked) = mpsc::channel(4);
    let service = served_by(inputs);
    let actor = async move {
        while let Some(input) = asked.recv().await {
            match input {
                ActorInput::HasManifest(_, reply) => reply.send(false).unwrap(),
                ActorInput::PutManifest(_, bytes, reply) => {
                    assert_eq!(bytes, b"layout");
                    return reply.send(answer).unwrap();
                }
                _ => panic!("nothing else is asked"),
            }
        }
        panic!("it was not asked to store");
    };
    let digest = manifest::blob_digest(b"layout").0.to_vec();
    let page = wire::ManifestPage { digest, size: 6, data: Bytes::from_static(b"layout") };
    let turns = Turns::new(ClientOrigin::Process(1));
    let pages = tokio_stream::iter([Ok(page)]);
    tokio::join!(service.store(&turns, pages), actor).0
}

#[tokio::test]
async fn a_manifest_for_which_there_is_no_room_is_not_stored() {
    assert!(stored(Ok(())).await.is_ok());
    let full = CallError::Limit { what: "manifests".to_owned(), limit: 7, got: 8 };
    let refused = stored(Err(full.clone())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert_eq!(refused.message(), full.to_string());
}

#[tokio::test]
async fn a_manifest_that_another_has_brought_meanwhile_is_not_read_again() {
    let (inputs, mut queue) = mpsc::channel(1);
    let service = served_by(inputs);
    let digest = ContentDigest([7; 16]);
    let first = wire::ManifestPage { digest: vec![7; 16], size: 9, ..Default::default() };
    let turns = Turns::new(ClientOrigin::Process(1));
    let asked = tokio::spawn(async move {
        for stored in [false, true] {
            let Some(ActorInput::HasManifest(asked, reply)) = queue.recv().await else {
                panic!("it is asked for first")
            };
            assert_eq!(asked, digest);
            reply.send(stored).unwrap();
        }
        queue
    });
    // Nothing comes after the first page: who reads on finds no manifest.
    let stored = service.store(&turns, tokio_stream::iter([Ok(first)])).await;
    stored.expect("it is stored");
    assert!(asked.await.unwrap().try_recv().is_err(), "nothing is stored a second time");
    let _again = turns.to_send().expect("its turn has ended");
}
