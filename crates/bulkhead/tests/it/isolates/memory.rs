//! Rows M1 to M20: what fills memory.

use bulkhead_wire::isolates::{Reason, fault::Class, result::Outcome};

use super::{GROUP_BYTES, Service, fault, tool, value};

/// What its process held, by the kernel's count, stayed below its limit.
fn within_its_group(row: &str, ended: &bulkhead_wire::isolates::Result) {
    let peak = ended.usage.as_ref().unwrap().memory_peak_bytes;
    assert!(peak <= GROUP_BYTES, "{row}: {peak} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn m1_m3_m5_m20_what_fills_its_memory_is_a_memory_limit_and_no_time_out() {
    let service = Service::start(&[]).await;
    for (row, body) in [
        ("M1", "let a=[];for(;;)a.push({})"),
        (
            "M1 strings",
            "let a=[];for(let i=0;;i++)a.push('x'.repeat(1000)+i)",
        ),
        (
            "M5",
            "const k=[];for(;;)k.push(new Uint8Array(1<<20).fill(1))",
        ),
        ("M3 fill", "return new Array(6e7).fill(0).length"),
        ("M20", "return 'a'.repeat(2**28).split('').length"),
    ] {
        let plugin = service.unchecked(&tool(body)).installed_as(row);
        let ended = service.beside_a_neighbour(&plugin).await;
        assert_eq!(
            fault(&ended).0,
            Class::MemoryLimit,
            "{row}: {:?}",
            ended.outcome
        );
        within_its_group(row, &ended);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_m6_m7_what_cannot_be_had_throws_where_it_is_asked_for() {
    let service = Service::start(&[]).await;
    for (row, body, right) in [
        (
            "M3 spread",
            "try { return [...'.'.repeat(1e9)].length } catch (e) { return e.name }",
            r#""RangeError""#,
        ),
        (
            "M6",
            "try { return new ArrayBuffer(2e9).byteLength } catch (e) { return e.name }",
            r#""RangeError""#,
        ),
        (
            "M7",
            "try { return new WebAssembly.Memory({initial:1}) } catch (e) { return e.name }",
            r#""ReferenceError""#,
        ),
    ] {
        let plugin = service.unchecked(&tool(body)).installed_as(row);
        let ended = service.beside_a_neighbour(&plugin).await;
        assert_eq!(value(&ended), right, "{row}");
        within_its_group(row, &ended);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m10_m11_m12_m14_what_leaves_an_invocation_is_bounded() {
    let service = Service::start(&[]).await;
    let thrown = service
        .unchecked(&tool("throw new Error('x'.repeat(1<<26))"))
        .installed_as("M10");
    let ended = service.beside_a_neighbour(&thrown).await;
    let (class, _, message) = fault(&ended);
    assert_eq!(class, Class::Crash);
    assert!(message.chars().count() <= 500, "M10: {}", message.len());

    let flood = service
        .unchecked(&tool("for(;;)host.log('x'.repeat(1e5))"))
        .installed_as("M11")
        .wall(1_000);
    let ended = service.beside_a_neighbour(&flood).await;
    assert_eq!(fault(&ended).0, Class::Timeout, "M11");
    let lines = service.platform.logs().len();
    assert!(lines <= 257, "M11: {lines} lines");

    let large = service
        .unchecked(&tool("return 'x'.repeat(4e7)"))
        .installed_as("M12");
    let ended = service.beside_a_neighbour(&large).await;
    let (class, reason, _) = fault(&ended);
    assert_eq!(
        (class, reason),
        (Class::BadRequest, Reason::ResultTooLarge),
        "M12"
    );

    let many = tool(
        "const all=[]; for(let i=0;i<1e4;i++) all.push(host.fetch('https://undeclared.invalid/'));
         const ended=await Promise.allSettled(all);
         return ended.filter((one) => one.reason?.code === 'limit').length > 9000",
    );
    let many = service.unchecked(&many).installed_as("M14");
    let ended = service.beside_a_neighbour(&many).await;
    assert_eq!(value(&ended), "true", "M14");
}

/// M17, shortened: the service holds no more after many calls than before.
#[tokio::test(flavor = "multi_thread")]
async fn m17_calls_leave_nothing_in_the_service() {
    let service = Service::start(&[]).await;
    let plugin = service.unchecked(&tool("return input.n + 1"));
    let resident = || {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", service.pid())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() << 12
    };
    let many = async |count: u32| {
        for n in 0..count {
            let mut plugin = plugin.clone();
            plugin.start.input_json = format!(r#"{{"n":{n}}}"#);
            assert_eq!(value(&service.call(&plugin).await), (n + 1).to_string());
        }
    };
    many(200).await;
    let before = resident();
    many(200).await;
    let after = resident();
    assert!(
        after <= before + before / 20,
        "{before} bytes before, {after} after"
    );
}

/// M16: without V8's own hint the kernel is the wall; the class says the same.
#[tokio::test(flavor = "multi_thread")]
async fn m16_memory_outside_the_heap_is_counted_too() {
    let service = Service::start(&[]).await;
    let body = "const k=[]; for(;;) { try { k.push(new Uint8Array(1<<20).fill(1)) } catch { k.push('y'.repeat(1e6).split('')) } }";
    let plugin = service.unchecked(&tool(body)).installed_as("M16");
    let ended = service.beside_a_neighbour(&plugin).await;
    assert!(matches!(&ended.outcome, Some(Outcome::Fault(_))));
    assert_eq!(fault(&ended).0, Class::MemoryLimit, "{:?}", ended.outcome);
    within_its_group("M16", &ended);
}
