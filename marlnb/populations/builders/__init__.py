"""The registered ways to run a league, one file each. `marlnb.config.LeagueConfig` says what they decide."""
