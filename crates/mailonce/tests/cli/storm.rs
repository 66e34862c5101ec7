//! `demo storm`: the kill falls among the callers, and the timeline can be looked at.

use crate::binary::CliFixture;

#[tokio::test]
async fn the_kill_falls_in_the_midst_and_the_timeline_has_an_address() {
    let cli = CliFixture::new();
    for callers in ["12", "50"] {
        let told = cli.run(&["demo", "storm", "--callers", callers, "--json"]).await.expect_exit(0).json();
        let callers: u64 = callers.parse().unwrap();
        let before = told["answered_before_kill"].as_u64().unwrap();
        assert!(before > 0 && before < callers, "{told}");
        assert_eq!((&told["emails"], &told["delivered"]), (&1.into(), &1.into()));
        assert!(told["calls"].as_u64().unwrap() > callers, "nobody had to ask again: {told}");
        let page = told["timeline"].as_str().unwrap().strip_prefix("file://").unwrap();
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("accepted") && page.contains(told["email"].as_str().unwrap()), "{page}");
        assert!(page.contains("final state: sent") && !page.contains("{rows}"), "{page}");
        // The email is accepted, the server dies and comes back, and only then the email leaves.
        let story = ["accepted", "kill -9", "starts again", "attempt 1: started", "accepted by the next hop"];
        let places: Vec<usize> = story.iter().map(|step| page.find(step).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?} {page}");
    }
}
