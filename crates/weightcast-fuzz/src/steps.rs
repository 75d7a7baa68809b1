//! Input of the machines: a list of things that happen, each a few numbers or a frame.

use arbitrary::{Result, Unstructured};

/// One thing that happens to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A frame comes on this stream.
    Frame(u8, Vec<u8>),
    /// This stream breaks.
    Broken(u8),
    /// So many milliseconds pass.
    Pass(u16),
    /// Something that the machine defines itself.
    Other(u8, u8),
}

/// The most steps taken of one input.
const MOST: usize = 256;

/// The steps in some bytes, as far as they go.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Step> {
    let mut input = Unstructured::new(bytes);
    std::iter::from_fn(|| (!input.is_empty()).then(|| step(&mut input).ok()).flatten())
        .take(MOST)
        .collect()
}

fn step(input: &mut Unstructured<'_>) -> Result<Step> {
    let kind: u8 = input.arbitrary()?;
    let stream: u8 = input.arbitrary()?;
    Ok(match kind % 8 {
        0..=4 => {
            let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
            Step::Frame(stream, input.bytes(length)?.to_vec())
        }
        5 => Step::Broken(stream),
        6 => Step::Pass(input.arbitrary()?),
        _ => Step::Other(stream, input.arbitrary()?),
    })
}

/// The bytes that make these steps: for corpora.
pub fn encode(steps: &[Step]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps {
        match step {
            Step::Frame(stream, frame) => {
                bytes.extend([0, *stream]);
                bytes.extend((frame.len() as u16).to_le_bytes());
                bytes.extend(frame);
            }
            Step::Broken(stream) => bytes.extend([5, *stream]),
            Step::Pass(millis) => {
                bytes.extend([6, 0]);
                bytes.extend(millis.to_le_bytes());
            }
            Step::Other(a, b) => bytes.extend([7, *a, *b]),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_back_from_their_bytes() {
        let steps = vec![
            Step::Frame(3, vec![1, 2, 3]),
            Step::Broken(3),
            Step::Pass(700),
            Step::Other(1, 2),
            Step::Frame(0, vec![]),
        ];
        assert_eq!(decode(&encode(&steps)), steps);
    }
}
