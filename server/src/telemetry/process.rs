//! What the process and its runtime cost, looked up when somebody asks.
//!
//! Read from `/proc` by hand: the library that the crate `prometheus` would use for it brings a second copy of `rustix`.
//! Where there is no `/proc` the gauges stay at zero.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Counter, Gauge, IntGauge, Opts, Registry};
use tokio::runtime::Handle;

/// Ticks of `/proc/self/stat` a second: a constant of Linux's interface, whatever the kernel's own clock.
const TICKS: f64 = 100.0;

/// The process as it is now.
#[derive(Debug)]
pub(crate) struct Process {
    cpu: Counter,
    resident: IntGauge,
    virtual_bytes: IntGauge,
    threads: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
    workers: IntGauge,
    tasks: IntGauge,
    queue: IntGauge,
    busy: Counter,
}

impl Process {
    /// # Errors
    /// If a family has the name of another.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::with_opts(Opts::new(name, help))?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        let counter = |name: &str, help: &str| {
            let counter = Counter::with_opts(Opts::new(name, help))?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        };
        let started = Gauge::with_opts(Opts::new("process_start_time_seconds", "When the process started, seconds since 1970"))?;
        started.set(now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        registry.register(Box::new(started))?;
        Ok(Self {
            cpu: counter("process_cpu_seconds_total", "Processor time, user and system, seconds")?,
            resident: gauge("process_resident_memory_bytes", "Memory in use, bytes")?,
            virtual_bytes: gauge("process_virtual_memory_bytes", "Address space, bytes")?,
            threads: gauge("process_threads", "Threads")?,
            open_fds: gauge("process_open_fds", "Open files and sockets")?,
            max_fds: gauge("process_max_fds", "Most files and sockets that may be open")?,
            workers: gauge("ambit_runtime_workers", "Threads that run tasks")?,
            tasks: gauge("ambit_runtime_tasks", "Tasks that have not ended")?,
            queue: gauge("ambit_runtime_queue_depth", "Tasks that are ready and wait for a thread in the common queue")?,
            busy: counter("ambit_runtime_busy_seconds_total", "Time in which threads ran tasks, summed over all of them")?,
        })
    }

    /// Looks everything up.
    pub(crate) fn look(&self) {
        if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
            rise(&self.cpu, seconds);
        }
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            let kib = |key| field(&status, key).unwrap_or_default().saturating_mul(1_024);
            self.resident.set(kib("VmRSS:"));
            self.virtual_bytes.set(kib("VmSize:"));
            self.threads.set(field(&status, "Threads:").unwrap_or_default());
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // One of them is the folder itself.
            self.open_fds.set(i64::try_from(files.count().saturating_sub(1)).unwrap_or(i64::MAX));
        }
        if let Some(max) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(|limits| field(limits, "Max open files")) {
            self.max_fds.set(max);
        }
        if let Ok(runtime) = Handle::try_current() {
            let metrics = runtime.metrics();
            let int = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            self.workers.set(int(metrics.num_workers()));
            self.tasks.set(int(metrics.num_alive_tasks()));
            self.queue.set(int(metrics.global_queue_depth()));
            rise(&self.busy, (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker).as_secs_f64()).sum());
        }
    }
}

/// Lets a counter that is kept elsewhere rise to what it is there.
fn rise(counter: &Counter, to: f64) {
    counter.inc_by((to - counter.get()).max(0.0));
}

/// User and system time: the 14th and 15th field, counted behind the name, which may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut behind = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut ticks = || behind.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

/// The first number behind a key at the beginning of a line.
fn field(text: &str, key: &str) -> Option<i64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "read once, at the start of the process")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 10";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (a"), None);
        assert_eq!(field("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(field("Max open files            1024                 4096                 files\n", "Max open files"), Some(1_024));
        assert_eq!(field("Max open files            unlimited\n", "Max open files"), None);
    }

    #[tokio::test]
    async fn a_process_finds_itself() {
        let process = Process::new(&Registry::new()).unwrap();
        process.look();
        process.look();
        assert!(process.workers.get() >= 1);
        if fs::exists("/proc/self/stat").unwrap() {
            assert!(process.resident.get() > 1 << 20 && process.open_fds.get() > 0 && process.threads.get() > 0);
        }
    }
}
