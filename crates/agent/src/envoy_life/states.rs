//! Which Envoys run, for the rest of the agent.

/// Another program that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStart {
    /// The number of hot restarts before it.
    pub epoch: u32,
    /// [`RunningEnvoys::exits`] before it: the number of an epoch that has exited is used again.
    pub exits: u32,
}

/// Why another program was not started.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// Envoy is about to end.
    #[error("Envoy drains, and is about to end")]
    Draining,
    /// There is no Envoy that could hand over.
    #[error("Envoy has crashed, and is about to be started again")]
    Crashed,
    /// The operating system has not started the program.
    #[error("the next epoch of Envoy cannot be started: {0}")]
    Start(#[from] std::io::Error),
}

/// The Envoys of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningEnvoys {
    /// The newest; `None` before the first start.
    pub current: Option<RunningEnvoy>,
    /// Those before it, which drain, or go on if it exits. Oldest first.
    pub draining: Vec<RunningEnvoy>,
    /// The last one that has exited, or could not be started, while the one before went on.
    pub last_exit: Option<EnvoyExit>,
    /// How often that happened.
    pub exits: u32,
    /// How often a crashed Envoy was started again.
    pub restarts: u32,
}

/// A process of Envoy that has not exited, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningEnvoy {
    /// The number of hot restarts before it.
    pub epoch: u32,
    /// The process id; `None` once it has exited.
    pub process: Option<u32>,
    /// The path of the program.
    pub program: String,
}

/// How an Envoy has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyExit {
    /// Its number, which the next one gets again.
    pub epoch: u32,
    /// The exit status, or why it could not be started.
    pub reason: String,
}
