//! A connection whose peer takes nothing ends: without that, a reader that never reads holds its place, its stream and the
//! text on its way for as long as it likes. Only a peer that takes not one byte is meant: a slow one is waited for.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Longest time without a byte taken: above what a suspended terminal or a proxy that switches over needs.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);

/// A connection whose writes fail once the peer has taken nothing for [`STALL_MAX`].
pub(crate) struct Unstalled<T> {
    io: T,
    /// Runs while a write waits; most connections never have one.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> Unstalled<T> {
    pub(crate) const fn new(io: T) -> Self {
        Self { io, stalled: None }
    }

    /// Passes on what came of a write; one that waits is bounded.
    fn bounded<R>(&mut self, cx: &mut Context<'_>, write: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if write.is_ready() {
            self.stalled = None;
            return write;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_MAX)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Unstalled<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Unstalled<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.io).poll_write(cx, buf);
        self.bounded(cx, write)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.bounded(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.io).poll_flush(cx);
        self.bounded(cx, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.io).poll_shutdown(cx);
        self.bounded(cx, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (mut near, _far) = {
            let (near, far) = duplex(4);
            (Unstalled::new(near), far)
        };
        near.write_all(b"1234").await.unwrap();
        let begun = Instant::now();
        let failed = near.write_all(b"5").await.unwrap_err();
        assert_eq!((failed.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, STALL_MAX.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_one_byte_at_a_time_is_waited_for() {
        let (near, mut far) = duplex(4);
        let mut near = Unstalled::new(near);
        near.write_all(b"1234").await.unwrap();
        for _ in 0..3 {
            // Not there yet at the last moment, then one byte is taken.
            assert!(timeout(STALL_MAX - Duration::from_millis(1), near.write_all(b"5")).await.is_err());
            far.read_u8().await.unwrap();
            near.write_all(b"5").await.unwrap();
        }
        // Time in which nothing is to be written does not count.
        advance(STALL_MAX * 2).await;
        far.read_u8().await.unwrap();
        near.write_all(b"6").await.unwrap();
    }
}
