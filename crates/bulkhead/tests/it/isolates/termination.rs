//! Rows T1 to T28: what takes too long, or never ends.

use bulkhead_wire::isolates::{Reason, fault::Class, not_run, result::Outcome};

use super::{Service, WALL_MS, fault, timed_out, tool, value};

/// Each runs into its clock, however it spends its time.
const SPINNING: &[(&str, &str)] = &[
    ("T1", "for(;;);"),
    ("T2", "Array.prototype.includes.call({length:2**53-1},1)"),
    ("T4 indexOf", "new Array(4e9).indexOf(1)"),
    ("T4 lastIndexOf", "new Array(4e9).lastIndexOf(1)"),
    ("T9 backtracking", "/^(a+)+$/.test('a'.repeat(40)+'!')"),
    ("T9 long", "/1+2/.test('1'.repeat(2**25))"),
    ("T10 await", "await (async()=>{for(;;)await null})()"),
    (
        "T10 then",
        "const f=()=>Promise.resolve().then(f); await f()",
    ),
    ("T12", "await host.log('x'); for(;;);"),
    ("T13", "for(;;) await host.log('x')"),
    (
        "T15 generator",
        "function*g(){try{yield 1}finally{for(;;);}} for(const x of g()) break;",
    ),
    (
        "T15 async generator",
        "async function*g(){try{yield 1}finally{for(;;)await null}} const i=g(); await i.next(); await i.return()",
    ),
    ("T17 endless", "return {then(r){ r({then: this.then}) }}"),
];

#[tokio::test(flavor = "multi_thread")]
async fn t1_to_t17_what_spins_is_ended_in_time_and_its_neighbour_ends_well() {
    let service = Service::start(&[]).await;
    for (row, body) in SPINNING {
        let plugin = service
            .unchecked(&tool(body))
            .installed_as(row)
            .wall(WALL_MS);
        let ended = service.beside_a_neighbour(&plugin).await;
        timed_out(row, &ended, WALL_MS);
    }
}

/// Rows whose work V8 may do quickly, or may not have the memory for: then that is the answer, and never an unknown crash.
#[tokio::test(flavor = "multi_thread")]
async fn t4_t6_t8_heavy_built_ins_end_by_their_clock_or_their_memory() {
    let service = Service::start(&[]).await;
    for (row, body) in [
        ("T4 toSorted", "new Array(2**27).toSorted()"),
        ("T4 slice", "new Array(4e9).slice().length"),
        ("T6", "'a'.repeat(2e7).replaceAll('a','bb').length"),
        ("T8", "BigInt('1'.repeat(1e8))"),
    ] {
        let body = format!("{body}; return 'done'");
        let plugin = service
            .unchecked(&tool(&body))
            .installed_as(row)
            .wall(WALL_MS);
        let ended = service.beside_a_neighbour(&plugin).await;
        let allowed = match &ended.outcome {
            Some(Outcome::ValueJson(value)) => value == r#""done""#,
            Some(Outcome::Fault(fault)) => {
                matches!(fault.class(), Class::Timeout | Class::MemoryLimit)
                    || (fault.class() == Class::Crash && fault.message.contains("RangeError"))
            }
            _ => false,
        };
        assert!(allowed, "{row}: {:?}", ended.outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_t17_a_promise_that_can_never_settle_ends_the_call_at_once() {
    let service = Service::start(&[]).await;
    for (row, body) in [
        ("T11", "await new Promise(()=>{})"),
        ("T17 never", "return {then(){}}"),
    ] {
        let plugin = service.unchecked(&tool(body)).installed_as(row);
        let ended = service.beside_a_neighbour(&plugin).await;
        let (class, reason, _) = fault(&ended);
        assert_eq!(
            (class, reason),
            (Class::BadRequest, Reason::NeverSettles),
            "{row}"
        );
        let wall_ms = ended.usage.unwrap().wall_ms;
        assert!(wall_ms < 5_000, "{row}: {wall_ms} ms of 30 s");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t18_t19_t21_t22_t23_what_is_absent_or_left_behind_harms_nobody() {
    let service = Service::start(&[]).await;
    for (row, body, right) in [
        (
            "T18",
            "return typeof FinalizationRegistry",
            r#""undefined""#,
        ),
        (
            "T19",
            "return typeof Atomics + typeof SharedArrayBuffer",
            r#""undefinedundefined""#,
        ),
        (
            "T21",
            "Error.prepareStackTrace=()=>{for(;;);}; try { null.x } catch (e) { return typeof e.stack }",
            r#""string""#,
        ),
        (
            "T22",
            "return typeof host.crypto.pbkdf2 + typeof host.crypto.scrypt",
            r#""undefinedundefined""#,
        ),
        (
            "T23",
            "host.settings.getSecret('key'); host.session.messages(); host.log('x'); return 'gone'",
            r#""gone""#,
        ),
    ] {
        let plugin = service
            .unchecked(&tool(body))
            .installed_as(row)
            .wall(10_000);
        let ended = service.beside_a_neighbour(&plugin).await;
        assert_eq!(value(&ended), right, "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t27_a_loop_at_load_is_a_time_out_at_load() {
    let service = Service::start(&[]).await;
    for source in [
        "for(;;); export const tools = {};",
        "class A { static { for(;;); } }",
    ] {
        let plugin = service.unchecked(source).wall(WALL_MS);
        let ended = service.beside_a_neighbour(&plugin).await;
        timed_out("T27", &ended, WALL_MS);
        let Some(Outcome::Fault(fault)) = &ended.outcome else {
            unreachable!("it timed out");
        };
        assert!(fault.at_load, "{fault:?}");
    }
}

/// T28, O6: a plugin that dies at every call is put on hold, alone; T25 needs no test: a process serves one call and ends.
#[tokio::test(flavor = "multi_thread")]
async fn t28_o6_a_plugin_that_dies_at_every_call_is_put_on_hold() {
    let service = Service::start(&[]).await;
    let spin = tool("Array.prototype.includes.call({length:2**53-1},1)");
    let plugin = service.unchecked(&spin).installed_as("poison").wall(50);
    for _ in 0..5 {
        let ended = service.beside_a_neighbour(&plugin).await;
        assert_eq!(fault(&ended).0, Class::Timeout);
    }
    let ended = service.beside_a_neighbour(&plugin).await;
    let Some(Outcome::NotRun(not_run)) = &ended.outcome else {
        panic!("{:?}", ended.outcome);
    };
    assert_eq!(not_run.reason(), not_run::Reason::OnHold);
    assert!(not_run.retry_after_ms > 0, "{not_run:?}");
    // Somebody else's installation of the same code is not held.
    let other = plugin.clone().installed_as("other");
    assert_eq!(fault(&service.call(&other).await).0, Class::Timeout);
    let status = service.client.status().await.unwrap();
    assert!(status.killed >= 6 && status.on_hold == 1, "{status:?}");
}
