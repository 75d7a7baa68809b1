//! Input of the machines: a list of things that happen, each a few numbers or a frame.

use arbitrary::{Result, Unstructured};

/// One thing that happens to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputStep {
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
pub(crate) fn decode(bytes: &[u8]) -> Vec<InputStep> {
    let mut input = Unstructured::new(bytes);
    std::iter::from_fn(|| (!input.is_empty()).then(|| step(&mut input).ok()).flatten())
        .take(MOST)
        .collect()
}

fn step(input: &mut Unstructured<'_>) -> Result<InputStep> {
    let kind: u8 = input.arbitrary()?;
    let stream: u8 = input.arbitrary()?;
    Ok(match kind % 8 {
        0..=4 => {
            let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
            InputStep::Frame(stream, input.bytes(length)?.to_vec())
        }
        5 => InputStep::Broken(stream),
        6 => InputStep::Pass(input.arbitrary()?),
        _ => InputStep::Other(stream, input.arbitrary()?),
    })
}

/// The bytes that make these steps: for corpora.
pub fn encode(steps: &[InputStep]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in steps {
        match step {
            InputStep::Frame(stream, frame) => {
                bytes.extend([0, *stream]);
                bytes.extend((frame.len() as u16).to_le_bytes());
                bytes.extend(frame);
            }
            InputStep::Broken(stream) => bytes.extend([5, *stream]),
            InputStep::Pass(millis) => {
                bytes.extend([6, 0]);
                bytes.extend(millis.to_le_bytes());
            }
            InputStep::Other(a, b) => bytes.extend([7, *a, *b]),
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
            InputStep::Frame(3, vec![1, 2, 3]),
            InputStep::Broken(3),
            InputStep::Pass(700),
            InputStep::Other(1, 2),
            InputStep::Frame(0, vec![]),
        ];
        assert_eq!(decode(&encode(&steps)), steps);
    }
}
