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

#[test]
fn docker_runs_a_container_of_the_image() {
    runs(&ContainerEngine::docker());
}

#[test]
fn podman_runs_a_container_of_the_image() {
    runs(&ContainerEngine::podman());
}
