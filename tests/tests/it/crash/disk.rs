//! A full disk (case 48): the server waits, and goes on by itself when there is room again.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{World, check, child::Fail};

/// A small file system in memory, gone with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m,mode=0700", "bulkhead-test"])
            .arg(at)
            .status()
            .unwrap();
        assert!(mounted.success(), "mounting a tmpfs needs root");
        Self(at.to_owned())
    }

    /// Takes all room that is left, and gives it back after a while.
    fn fill_for(&self, pause: Duration) {
        let path = self.0.join("filler");
        let mut filler = File::create(&path).unwrap();
        for size in [64 << 10, 4 << 10, 256] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
        std::thread::sleep(pause);
        std::fs::remove_file(&path).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// Case 48: the disk under the data directory is full while a phase runs; nothing is lost, nothing happens twice,
/// and nobody has to start the server again.
#[test]
fn case_48_a_full_disk_is_waited_for() {
    let world = World::new();
    let disk = SmallDisk::mount(&world.root.join("data"));
    // The push of the phase may fail for want of room; then the phase parks, and is approved to run again.
    let child = world.start_with(Fail::Never, Duration::from_secs(30));
    world.until_said("plan begins");
    disk.fill_for(Duration::from_secs(2));
    let status = world.wait(child);
    assert!(status.success(), "{status}\n{}", world.words());
    check::right_end_with(&world.root, "a full disk", check::Parked::May);
}
