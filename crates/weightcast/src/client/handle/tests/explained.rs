//! What is said of a failed call beside its error.

use super::*;
use crate::client::mismatch::refusal::FoundRefusal;
use crate::client::reading::route::tests::RouteScene;

fn refused(detail: &str) -> CallError {
    let (replica, detail) = ("b".to_owned(), detail.to_owned());
    CallError::ContentMismatch { version: VERSION, replica, detail }
}

#[test]
fn a_refusal_is_told_with_what_was_found_of_it() {
    let mut scene = saying(committed());
    let explained = |scene: &HandleScene, error: CallError, refusal: &Arc<FoundRefusal>| {
        let refusal = Some(Arc::clone(refusal));
        scene.handle.explained(FailedCall { error, evidence: None, refusal })
    };
    let other = CallError::Misuse { detail: "x".to_owned() };
    for (found, said) in [(Some("in w"), "in w: sums differ"), (None, "sums differ")] {
        let refusal = Arc::<FoundRefusal>::default();
        refusal.end(found.map(str::to_owned));
        assert_eq!(explained(&scene, refused("sums differ"), &refusal).unwrap(), refused(said));
        assert_eq!(explained(&scene, other.clone(), &refusal).unwrap(), other);
    }
    scene.handle.interrupted = Some(Box::new(|| true));
    let ended = explained(&scene, refused("sums differ"), &Arc::default());
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
}

fn differs(detail: &str) -> CallError {
    let (source_replica, detail) = ("trainer".to_owned(), detail.to_owned());
    CallError::DigestMismatch { version: VERSION, source_replica, detail }
}

/// Of memory that its source has changed since it was published.
#[test]
fn a_read_that_differs_is_told_with_its_place() {
    let read = RouteScene::reading("b");
    read.serve(1, 7);
    read.note(1, &read.served(1).note(&read.served(1).digest_all()));
    read.served(1).regions[0].write_at(5, &[9]).unwrap();
    let evidence = read.read().map_err(|e| format!("{e:?}")).unwrap().evidence;
    let mut scene = saying(committed());
    let located = |scene: &HandleScene, error, left| scene.handle.located(error, &evidence, left);
    let error = located(&scene, differs("sums differ"), LONG).unwrap();
    let place = scene.handle.mismatch().expect("it is found");
    assert_eq!((error, place.cause), (differs(&place.said), Cause::Source));
    // No time is left to look.
    let error = located(&scene, differs("sums differ"), Duration::ZERO).unwrap();
    let CallError::DigestMismatch { detail, .. } = &error else { panic!("{error}") };
    assert!(detail.starts_with("sums differ; the place was not found"), "{detail}");
    assert_eq!(scene.handle.mismatch(), None);
    assert_eq!(located(&scene, refused("x"), LONG).unwrap(), refused("x"));
    scene.handle.interrupted = Some(Box::new(|| true));
    let ended = located(&scene, differs("sums differ"), LONG);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
}
