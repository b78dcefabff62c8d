//! The engines are real ones, and run a container of their image.

use bulkhead_test_hosts::ContainerEngine;

fn runs(engine: &ContainerEngine) {
    let said = engine.client(&[
        "run",
        "--rm",
        "--network=none",
        "--volume=/usr:/usr:ro",
        ContainerEngine::IMAGE,
        "/bin/echo",
        "inside",
    ]);
    assert_eq!(said, "inside\n");
    assert!(engine.socket().exists());
}

/// H12: a real engine of the tests' own.
#[test]
fn docker_runs_a_container_of_the_image() {
    runs(&ContainerEngine::docker());
}

/// H12: and another one.
#[test]
fn podman_runs_a_container_of_the_image() {
    runs(&ContainerEngine::podman());
}
