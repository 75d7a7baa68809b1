//! What a doctor is asked to look at.

/// What is examined beside this host.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// A command that runs [`self_test_reader`](crate::self_test_reader): the second process of the self-test. Without one, no bytes are moved.
    pub program: Vec<String>,
    /// Two replicas, to say what would be chosen between them.
    pub choice: Option<ChoiceOf>,
}

/// A source and a reader.
#[derive(Clone, Debug)]
pub struct ChoiceOf {
    /// The replica that would be read.
    pub source: String,
    /// The replica that would read.
    pub reader: String,
    /// Their model; needed where several have such replicas.
    pub model: Option<String>,
}
