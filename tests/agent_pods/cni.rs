//! istio-cni's side of the ZDS socket: it sends ztunnel the pods of the node, each with a file
//! descriptor of its network namespace.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, socket_with,
};

/// How long ztunnel may take to connect, and to respond.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `istio.workload.zds.WorkloadInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    service_account: String,
}

/// Adds a pod; the message carries a file descriptor of its network namespace.
#[derive(Clone, PartialEq, prost::Message)]
struct AddWorkload {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(message, optional, tag = "2")]
    workload_info: Option<WorkloadInfo>,
}

/// Removes a pod.
#[derive(Clone, PartialEq, prost::Message)]
struct DelWorkload {
    #[prost(string, tag = "2")]
    uid: String,
}

/// All existing pods have been sent.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct SnapshotSent {}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Payload {
    #[prost(message, tag = "1")]
    Add(AddWorkload),
    #[prost(message, tag = "2")]
    Del(DelWorkload),
    #[prost(message, tag = "3")]
    SnapshotSent(SnapshotSent),
}

/// A message to ztunnel.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadRequest {
    #[prost(oneof = "Payload", tags = "1, 2, 3")]
    payload: Option<Payload>,
}

/// Whether ztunnel succeeded: the error is empty then.
#[derive(Clone, PartialEq, prost::Message)]
struct Ack {
    #[prost(string, tag = "1")]
    error: String,
}

/// A message from ztunnel.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadResponse {
    #[prost(message, optional, tag = "1")]
    ack: Option<Ack>,
}

/// A pod of the node.
#[derive(Clone, Debug)]
pub(crate) struct Enrolled {
    /// Its name, which is also its UID here.
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    pub(crate) account: String,
    /// Its network namespace.
    pub(crate) space: String,
}

/// The socket, and ztunnel's connection to it.
pub(crate) struct Cni {
    listener: OwnedFd,
    connection: Option<OwnedFd>,
}

impl Cni {
    /// Creates the socket to which ztunnel will connect.
    pub(crate) fn listen(path: &Path) -> Result<Self> {
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 1)?;
        set_socket_timeout(&listener, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self {
            listener,
            connection: None,
        })
    }

    /// Waits for ztunnel's connection, and sends all pods.
    pub(crate) fn enroll(&mut self, pods: &[Enrolled]) -> Result<()> {
        let connection =
            accept_with(&self.listener, SocketFlags::CLOEXEC).context("ztunnel did not connect")?;
        set_socket_timeout(&connection, Timeout::Recv, Some(TIMEOUT))?;
        self.connection = Some(connection);
        ensure!(!self.receive()?.is_empty(), "ztunnel sends its hello first");

        for pod in pods {
            self.add(pod)?;
        }
        self.send_and_wait(Payload::SnapshotSent(SnapshotSent {}), None)
    }

    /// Adds a pod.
    pub(crate) fn add(&self, pod: &Enrolled) -> Result<()> {
        let info = WorkloadInfo {
            name: pod.name.clone(),
            namespace: pod.namespace.to_owned(),
            service_account: pod.account.clone(),
        };
        let namespace = File::open(Path::new("/run/netns").join(&pod.space))?;
        let add = AddWorkload {
            uid: pod.name.clone(),
            workload_info: Some(info),
        };
        self.send_and_wait(Payload::Add(add), Some(namespace.as_fd()))
            .with_context(|| pod.name.clone())
    }

    /// Removes a pod.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.send_and_wait(
            Payload::Del(DelWorkload {
                uid: name.to_owned(),
            }),
            None,
        )
    }

    /// Sends a message and waits for the acknowledgement.
    fn send_and_wait(&self, payload: Payload, namespace: Option<BorrowedFd<'_>>) -> Result<()> {
        let bytes = WorkloadRequest {
            payload: Some(payload),
        }
        .encode_to_vec();
        let files: Vec<_> = namespace.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);

        if !files.is_empty() {
            ensure!(
                control.push(SendAncillaryMessage::ScmRights(&files)),
                "the control message has no room for a file descriptor"
            );
        }

        sendmsg(
            self.connection()?,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;

        let answer = WorkloadResponse::decode(self.receive()?.as_slice())?
            .ack
            .context("no acknowledgement")?;
        ensure!(answer.error.is_empty(), "ztunnel: {}", answer.error);

        Ok(())
    }

    /// Receives the next message.
    fn receive(&self) -> Result<Vec<u8>> {
        let mut buffer = [0_u8; 4096];
        let (_, length) = recv(self.connection()?, &mut buffer[..], RecvFlags::empty())
            .context("ztunnel sent no message")?;
        Ok(buffer[..length].to_vec())
    }

    fn connection(&self) -> Result<&OwnedFd> {
        self.connection.as_ref().context("ztunnel is not connected")
    }
}
