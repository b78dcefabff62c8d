#!/bin/sh
# Each line is a command, what it must print, and nothing else.
expect() {
    actual=$(sh greet $1)
    if [ "$actual" = "$2" ]; then
        echo "ok: greet $1"
    else
        echo "FAILED: greet $1 printed '$actual' and not '$2'"
        exit 1
    fi
}

expect "" "Hello, world!"
expect "Ada" "Hello, Ada!"
